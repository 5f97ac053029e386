"""What orders threads other than flags: fences, barriers, kernel boundaries, and the engines that work beside a thread."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .buffers import Message, Where
from .memory import Memory
from .order import Record, Scope, Sem, Thread, inclusive, join


def fence(memory: Memory, t: Thread, scope: Scope, sc: bool = False) -> None:
    """`fence.acq_rel` or `fence.sc`: acquires what relaxed reads before it saw, and releases for strong writes after it."""
    for records, _ in t.pending.values():
        for record in records:
            if inclusive(record.scope, record.thread, scope, t):
                join(t, record.vc, record.seen)
    t.floor = len(memory.messages)
    if sc:  # one after another, for those whose scopes include each other
        for record in memory.sc_fences.values():
            if inclusive(record.scope, record.thread, scope, t):
                join(t, record.vc, record.seen)
    record = memory.publish(t, scope)
    t.fences[scope] = record
    if sc:
        memory.sc_fences[t.index, scope] = record


def together(memory: Memory, threads: Iterable[Thread], scope: Scope) -> None:
    """A barrier: each learns what all of them knew (block barrier: scope CTA; host barrier: SYS)."""
    threads = list(threads)
    records = [memory.publish(t, scope) for t in threads]
    for t in threads:
        for record in records:
            if record.thread is not t:
                join(t, record.vc, record.seen)
    floor = max(t.floor for t in threads)
    for t in threads:
        t.floor = floor if scope is Scope.CTA else len(memory.messages)


def block_barrier(memory: Memory, threads: tuple[Thread, ...]) -> None:
    """`together` for the threads of a work-group, which is what most steps are: joined in place, no records."""
    first, *others = threads
    size = len(first.vc)
    if memory.mode == "late" or any(len(t.vc) != size for t in others):
        together(memory, threads, Scope.CTA)
        return
    for t in others:
        np.maximum(first.vc, t.vc, out=first.vc)
        first.seen |= t.seen
        first.floor = max(first.floor, t.floor)
    for t in others:
        t.vc[:] = first.vc
        t.seen |= first.seen
        t.floor = first.floor
    for t in threads:
        t.tick()


def start(memory: Memory, t: Thread, record: Record) -> None:
    """A thread starts after all that a record covers: a work-group after its launch."""
    join(t, record.vc, record.seen)
    t.floor = len(memory.messages)


def follow(memory: Memory, t: Thread, earlier: Iterable[Thread], scope: Scope) -> None:
    """`t` starts after all that the others did so far: the start of a kernel, or its end for the host."""
    for other in earlier:
        record = memory.publish(other, scope)
        join(t, record.vc, record.seen)
    t.floor = len(memory.messages)


class Engine:
    """Something that performs accesses later than they were issued: a NIC (puts of one WG to one peer) or the TMA unit.

    Nobody knows an access of the engine, not even the engine's next one, unless its clock was passed on by `complete`
    (quiet, wait) or `ordered` (fence).
    """

    def __init__(self, memory: Memory, thread: Thread):
        self.memory, self.thread = memory, thread
        self.fenced = 0  # clock up to which its accesses come before all later ones

    def _begin(self, issuer: Thread) -> None:
        """The next access: ordered after everything its issuer knows and what was fenced, and nothing else."""
        t = self.thread
        t.vc = issuer.vc.copy()
        t.seen = set(issuer.seen)
        t.vc[t.index] = max(t.vc[t.index], self.fenced)

    def _end(self) -> None:
        self.thread.now += 1

    def copy(
        self, issuer: Thread, source: Where | None, target: Where, values: np.ndarray | None, dtype: np.dtype, site: Any, op: str
    ) -> Message:  # fmt: skip
        """Read `source` (or take `values`) and write `target`, both at an unknown time from now on."""
        self._begin(issuer)
        if source is not None:
            arriving = len(self.memory.messages)  # the message below: when it is known, the source has been read
            values = self.memory.load(
                self.thread, source, dtype, Sem.PLAIN, Scope.SYS, site, f"{op} (source)", put=arriving
            )
        m = self.memory.store(self.thread, target, values, Sem.PLAIN, Scope.SYS, site, op)
        self._end()
        return m

    def signal(
        self, issuer: Thread, flag: Where, change: Any, dtype: np.dtype, data: Message | None, site: Any, op: str
    ) -> None:  # fmt: skip
        """Update `flag` after the message `data` of the same put and after what was fenced. Carries what the issuer knows."""
        self._begin(issuer)
        t, memory = self.thread, self.memory
        known = set(t.seen)
        if data is not None:
            known.add(data.id)
        vc = t.vc.copy()
        record = Record(vc, frozenset(known), Scope.SYS, issuer, issuer.now)
        t.fences = {Scope.SYS: record}
        memory.rmw(t, flag, dtype, change, Sem.RELAXED, Scope.SYS, site, op)
        t.fences = {}
        issuer.tick()
        self._end()

    def ordered(self) -> None:
        """Fence: accesses so far are performed before later ones."""
        self.fenced = self.thread.now - 1

    def complete(self, issuers: Iterable[Thread]) -> None:
        """Quiet, or a full wait: the issuers know that everything so far is done."""
        for t in issuers:
            t.vc[self.thread.index] = max(t.vc[self.thread.index], self.thread.now - 1)
