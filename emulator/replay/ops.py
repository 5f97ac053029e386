"""One operation of a work-group, as the scheduler sees it: resolved to buffers, ready to be performed or recorded."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..memory_model import Scope, Sem, Where

LOAD, STORE, RMW, BARRIER, FENCE, PUT, SIGNAL, ORDER, QUIET, ASYNC, ASYNC_WAIT, PAUSE, FAULT, MEET = range(14)
NAMES = (
    "load", "store", "atomic", "barrier", "fence", "put", "signal", "nic fence", "quiet", "async store", "async wait", "pause", "fault", "meeting",
)  # fmt: skip
_LOCAL = frozenset({BARRIER, FENCE, ORDER, QUIET, ASYNC_WAIT})


class Op:
    """What to do and where. Which fields count depends on `kind`.

    Attributes:
        kind: LOAD, STORE, ...
        where: cells of the access (the target, for puts); `source` the cells a put reads.
        dtype: numpy dtype of the elements.
        sem, scope: order and scope.
        values: 1-D values to store, or operand.
        change: for RMW, old values -> new values or None; None where the operation writes nothing (`atomic_add(p, 0)`).
        site: (file, line) of the kernel source.
        name: Triton's name of it, for reports.
        lead: done by thread 0 alone (scalar atomics and stores); else by the other threads of the work-group.
        everyone: done by every thread (volatile scalar loads).
        joins: followed by a block barrier that Triton puts there (a scalar atomic whose result is used).
        peer: rank whose memory a put or signal goes to.
        local: no other work-group can tell when it happens: no scheduling point.
        scalar: one element: its value may steer control flow.
        mark: what the digest takes in of it.
    """

    __slots__ = (
        "change", "dtype", "everyone", "joins", "kind", "lead", "local", "mark", "name", "peer", "scalar", "scope", "sem", "site",
        "source", "values", "where",
    )  # fmt: skip

    def __init__(
        self, kind: int, site: Any, name: str, where: Where | None = None, dtype: np.dtype | None = None,
        sem: Sem = Sem.PLAIN, scope: Scope = Scope.SYS, values: np.ndarray | None = None,
        change: Callable[[np.ndarray], np.ndarray | None] | None = None, *, lead: bool = False, everyone: bool = False,
        joins: bool = False, peer: int = -1, source: Where | None = None, scalar: bool = False,
    ):  # fmt: skip
        self.kind, self.site, self.name, self.where, self.dtype, self.sem, self.scope = (
            kind,
            site,
            name,
            where,
            dtype,
            sem,
            scope,
        )
        self.values, self.change, self.lead, self.everyone, self.joins = values, change, lead, everyone, joins
        self.peer, self.source, self.scalar = peer, source, scalar
        self.local = kind in _LOCAL and not (kind == FENCE and values)  # sc fences order threads with one another
        self.mark = 0
        if where is not None:
            place = ((where.buf.rank << 40) + where.lo * where.buf.cell) * 0x9E3779B97F4A7C15 + where.n * where.buf.cell
            self.mark = (place << 16 | kind << 8 | int(sem) << 4 | int(scope)) & ((1 << 64) - 1)

    def same(self, other: "Op") -> bool:
        """Whether both ask for the same thing (used to check that a re-run of a work-group follows its record)."""
        a, b = self.where, other.where
        if self.kind != other.kind or self.site != other.site or (a is None) != (b is None):
            return False
        return a is None or (a.buf is b.buf and a.lo == b.lo and a.n == b.n)
