"""Race detection: sets of reads per cell, and the check of an access against the accesses before it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .buffers import Buffer, Message, Where
from .order import Scope, Sem, Thread, inclusive


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a conflict. `clock` is its thread's clock and `time` the number of messages at the time."""

    thread: Thread
    clock: int
    op: str
    site: Any
    sem: Sem
    scope: Scope
    time: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """A finding of the detector.

    kind: "race" (two accesses, not ordered), "scope" (two atomics whose scopes leave the other out), "lanes" (threads of one
    work-group without a barrier between), "never written" (a plain load of memory that nobody has stored into).
    """

    kind: str
    buf: Buffer
    cell: int
    earlier: Access | None
    later: Access


class Read:
    """One member of a set of reads."""

    __slots__ = ("agent", "clock", "op", "put", "scope", "site", "strong", "thread", "time")

    def __init__(self, t: Thread, strong: bool, scope: Scope, site: Any, op: str, put: int, time: int):
        self.thread, self.agent, self.clock = t, t.index, t.now
        self.strong, self.scope, self.site, self.op, self.put = strong, scope, site, op, put
        self.time = time

    def known(self, t: Thread) -> bool:
        return t.vc[self.agent] >= self.clock or self.put in t.seen


class Detector:
    """Finds conflicting accesses that no happens-before orders.

    `report` gets each `Conflict`, once per pair of sites; `messages` is the memory's list, which tells the time.
    """

    def __init__(self, report: Callable[[Conflict], None], messages: list):
        self._report, self._messages = report, messages
        self._told: set = set()
        self._sets: list[tuple[Read, ...]] = [()]
        self._grown: dict[int, int] = {}  # (set, kind of read) -> set with it, packed into one integer

    def tell(self, kind: str, w: Where, cell: int, earlier: Access | None, later: Access) -> None:
        key = (kind, w.buf.name, earlier and earlier.site, later.site)
        if key not in self._told:
            self._told.add(key)
            self._report(Conflict(kind, w.buf, cell, earlier, later))

    def against(self, t: Thread, w: Where, m: Message, sem: Sem, scope: Scope, site: Any, op: str) -> None:
        """The access conflicts with message `m`, which `t` does not know."""
        if sem and m.strong:
            if inclusive(m.scope, m.thread, scope, t):
                return
            kind = "scope"
        else:
            kind = "race"
        earlier = Access(m.thread, m.clock, m.op, m.site, Sem.RELAXED if m.strong else Sem.PLAIN, m.scope, m.id)
        self.tell(kind, w, self._first(w, w.buf.last, m.id), earlier, Access(t, t.now, op, site, sem, scope))

    def lanes(self, t: Thread, w: Where, m: Message, sem: Sem, scope: Scope, site: Any, op: str) -> None:
        """Own store of the same barrier interval, lanes mapped differently: another thread of the block may have done it."""
        earlier = Access(t, m.clock, m.op, m.site, Sem.PLAIN, m.scope, m.id)
        self.tell("lanes", w, self._first(w, w.buf.last, m.id), earlier, Access(t, t.now, op, site, sem, scope))

    def never_written(self, t: Thread, w: Where, scope: Scope, site: Any, op: str) -> None:
        cell = self._first(w, w.buf.last, 0)
        if not w.buf.bytes[cell].any():  # else the host wrote it in a way that was not seen
            self.tell("never written", w, cell, None, Access(t, t.now, op, site, Sem.PLAIN, scope))

    @staticmethod
    def _first(w: Where, cells: np.ndarray, value: int) -> int:
        """The first cell of the access with that entry; the access's first cell if the message is not the newest there."""
        hits = np.flatnonzero(w.of(cells) == value)
        at = int(hits[0]) if len(hits) else 0
        return w.lo + at if w.idx is None else int(w.idx[at])

    def note_read(self, t: Thread, w: Where, strong: bool, scope: Scope, site: Any, op: str, put: int = -1) -> None:
        """Add the access to its cells' sets of reads. `put`: the message whose arrival also proves that this read is done."""
        reads = w.buf.reads
        if w.idx is None:
            got = reads[w.lo : w.hi]
            first = got.item(0)
            if w.n == 1 or not (got != first).any():
                new = self._with(first, t, strong, scope, site, op, put)
                if new != first:
                    reads[w.lo : w.hi] = new
                return
        else:
            got = reads[w.idx]
        old, inverse = np.unique(got, return_inverse=True)
        new = np.array([self._with(i, t, strong, scope, site, op, put) for i in old.tolist()], np.int32)
        reads[slice(w.lo, w.hi) if w.idx is None else w.idx] = new[inverse]

    def _with(self, old: int, t: Thread, strong: bool, scope: Scope, site: Any, op: str, put: int) -> int:
        key = (old << 1 | strong) << 56 | t.index << 32 | t.now
        new = self._grown.get(key)
        if new is None:
            # A read ordered before this one is implied by it, unless it is plain and this one strong.
            kept = tuple(r for r in self._sets[old] if not ((r.strong or not strong) and r.known(t)))
            new = len(self._sets)
            self._sets.append((*kept, Read(t, strong, scope, site, op, put, len(self._messages))))
            self._grown[key] = new
            self._grown[(new << 1 | strong) << 56 | t.index << 32 | t.now] = new
        return new

    def check_reads(self, t: Thread, w: Where, sem: Sem, scope: Scope, site: Any, op: str) -> int:
        """A write conflicts with the reads before it. Returns the set of reads that outlives the write."""
        got = w.of(w.buf.reads)
        first = got.item(0)
        sets = (first,) if w.n == 1 or not (got != first).any() else np.unique(got).tolist()
        outlives: tuple[Read, ...] = ()
        for i in sets:
            for r in self._sets[i]:
                if r.known(t):
                    continue
                kind = "scope" if sem and r.strong else "race"
                if sem and r.strong and inclusive(r.scope, r.thread, scope, t):
                    outlives += (r,)
                    if r.thread.block is None or r.thread.block != t.block:
                        continue
                    kind = "lanes"  # each thread reads for itself: one that is late would get what its own work-group wrote
                earlier = Access(
                    r.thread, r.clock, r.op, r.site, Sem.RELAXED if r.strong else Sem.PLAIN, r.scope, r.time
                )
                self.tell(kind, w, self._first(w, w.buf.reads, i), earlier, Access(t, t.now, op, site, sem, scope))
        if not outlives:
            return 0
        if len(sets) == 1 and len(outlives) == len(self._sets[first]):
            return first
        self._sets.append(outlives)
        return len(self._sets) - 1
