"""Orders, scopes, threads and clocks: what one access can know of another.

Happens-before is PTX's base causality order. Every thread has a vector clock; a write or read of thread `a` at clock `c` is
known to a thread whose clock has component `a` at `c` or more.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Sem(IntEnum):
    """Memory order of an access. PLAIN is PTX's weak; all others are strong."""

    PLAIN = 0
    RELAXED = 1
    ACQUIRE = 2
    RELEASE = 3
    ACQ_REL = 4

    @property
    def acquires(self) -> bool:
        return self is Sem.ACQUIRE or self is Sem.ACQ_REL

    @property
    def releases(self) -> bool:
        return self is Sem.RELEASE or self is Sem.ACQ_REL


class Scope(IntEnum):
    """Which threads an order or a strong access holds for: those of the block, of the rank's device, of all ranks."""

    CTA = 0
    GPU = 1
    SYS = 2


class Thread:
    """One logical thread: performs its accesses in program order and has a vector clock.

    Attributes:
        index: its component in every vector clock.
        rank: the device it runs on; `block`: its work-group (any hashable, equal for threads of one block).
        role: "lead", "tile", "lanes", "async", "nic" or "host".
        name: for reports.
        vc: int64 [threads], what it knows; `now` is its own component.
        seen: ids of single messages it knows without knowing what came before them.
        floor: in the stale-loads-only mode, the time at which memory was last refreshed.
    """

    __slots__ = (
        "block",
        "fences",
        "floor",
        "index",
        "log",
        "name",
        "now",
        "pending",
        "rank",
        "released",
        "role",
        "seen",
        "vc",
    )

    def __init__(self, index: int, rank: int, block: object, role: str, name: str, vc: np.ndarray):
        self.index, self.rank, self.block, self.role, self.name = index, rank, block, role, name
        self.vc = vc
        self.now = 1
        vc[index] = 1
        self.seen: set[int] = set()
        self.floor = 0
        self.fences: dict[Scope, Record] = {}  # latest release fence per scope: later strong writes carry it
        self.pending: dict[int, tuple] = {}  # message id -> records a relaxed read has seen: a later fence joins them
        self.released: dict[
            tuple, Record
        ] = {}  # location -> record of a release there: later strong writes there carry it
        self.log: list = []  # flags written and read, for explanations

    def tick(self) -> None:
        """What follows is not covered by what was published so far."""
        self.now += 1
        self.vc[self.index] = self.now

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What a release publishes: everything its thread knew, and for whom."""

    vc: np.ndarray
    seen: frozenset[int]
    scope: Scope
    thread: Thread
    clock: int


def inclusive(scope_a: int, a: Thread, scope_b: int, b: Thread) -> bool:
    """Whether each scope includes the other's thread (the scope half of PTX's "morally strong")."""
    narrow = min(scope_b, scope_a)
    if narrow == 2:
        return True
    if a.rank != b.rank:
        return False
    return narrow == 1 or a.block == b.block


def join(t: Thread, vc: np.ndarray, seen: frozenset[int] | set[int]) -> None:
    """Thread `t` learns everything that `vc` and `seen` cover."""
    if len(vc) == len(t.vc):
        np.maximum(t.vc, vc, out=t.vc)
    elif len(vc) < len(t.vc):
        np.maximum(t.vc[: len(vc)], vc, out=t.vc[: len(vc)])
    else:
        grown = vc.copy()
        np.maximum(grown[: len(t.vc)], t.vc, out=grown[: len(t.vc)])
        t.vc = grown
    if seen:
        t.seen |= seen
