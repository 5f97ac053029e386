"""Memory with histories: what a load may return, what a store replaces, and what an atomic passes on.

One mechanism gives all weak outcomes. A store appends a message to its cells. A load walks back from the newest message and may
return any, up to and including the first one that its thread knows. See ../README.md.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .buffers import Message, Where
from .order import Record, Scope, Sem, Thread, inclusive, join
from .races import Conflict, Detector

MODES = ("sc", "late", "stale", "weak")


class Chooser(Protocol):
    """Where the adversary decides. Each method is asked only when there is a choice."""

    def stale(self, t: Thread, w: Where, n: int) -> int:
        """A strong load of one location may return `n` messages: 0 the newest, n - 1 the oldest."""

    def tile(self, t: Thread, w: Where) -> float:
        """A load races with stores: the part of the elements, from the first on, that are read as old as allowed (0 to 1)."""

    def place(self, t: Thread, w: Where, n: int) -> int:
        """A store may go before the newest 0 .. n messages of its location."""


class Memory:
    """All memory of all ranks.

    Args:
        chooser: decides among allowed outcomes.
        mode: "weak"; or for control experiments "sc" (newest value always), "late" (stores reach others late, but all at
            once: store buffers), "stale" (stores arrive at once, loads may be from before the thread's last acquire).
        report: gets each race; None switches the detector off.
        threads: components of vector clocks to start with; they grow as threads are added.
    """

    def __init__(
        self, chooser: Chooser, mode: str = "weak", report: Callable[[Conflict], None] | None = None, threads: int = 8
    ):
        if mode not in MODES:
            raise ValueError(f"memory mode {mode!r} is not one of {', '.join(MODES)}")
        self.chooser, self.mode = chooser, mode
        self.messages: list[Message | None] = [None]
        self.detector = Detector(report, self.messages) if report is not None else None
        self.threads: list[Thread] = []
        self.capacity = threads
        self.undelivered: list[Message] = []  # late mode only
        self.sc_fences: dict[tuple[int, Scope], Record] = {}
        self.stale_reads = 0
        self.changed: list[Where] = []  # stores since the engine last looked

    def thread(self, rank: int, block: object, role: str, name: str) -> Thread:
        """A new logical thread that knows nothing yet."""
        if len(self.threads) == self.capacity:
            self.capacity *= 2
            for t in self.threads:
                t.vc = np.concatenate([t.vc, np.zeros(self.capacity - len(t.vc), np.int64)])
        t = Thread(len(self.threads), rank, block, role, name, np.zeros(self.capacity, np.int64))
        self.threads.append(t)
        return t

    @staticmethod
    def known(t: Thread, m: Message) -> bool:
        """Whether `m` happened before whatever `t` does next."""
        return t.vc[m.agent] >= m.clock or m.id in t.seen

    def _hidden(self, t: Thread, m: Message) -> bool:
        """Whether the adversary may keep `m` from `t`, in this mode."""
        if self.known(t, m) or self.mode == "sc":
            return False
        if self.mode == "weak":
            return True
        if m.thread.block == t.block and m.thread.rank == t.rank:
            return False
        if self.mode == "late":
            return m.reach == 0 or (m.reach == 1 and m.thread.rank != t.rank)
        return m.time > t.floor and not m.strong

    # ------------------------------------------------------------------------------------------------------- loads
    def load(
        self, t: Thread, w: Where, dtype: np.dtype, sem: Sem, scope: Scope, site: Any, op: str, put: int = -1
    ) -> np.ndarray:
        """Values of the access, 1-D of `dtype`. Strong loads of one location may be acquires; tiles are relaxed at most."""
        ids = w.of(w.buf.last)
        first = ids.item(0)
        distinct = (first,) if w.n == 1 or not (ids != first).any() else np.unique(ids).tolist()
        if sem and len(distinct) == 1 and w.n * w.buf.cell == dtype.itemsize:
            return self._load_one(t, w, dtype, sem, scope, site, op)
        detector, unknown = self.detector, False
        vc = t.vc
        for i in distinct:
            if i == 0:
                if w.buf.poison and w.n > 1 and detector and not sem and t.role != "host":
                    detector.never_written(t, w, scope, site, op)
                continue
            m = self.messages[i]
            if vc[m.agent] >= m.clock or i in t.seen:
                if detector:
                    if m.agent == t.index and m.clock == t.now and m.where.key != w.key and t.role == "tile":
                        detector.lanes(t, w, m, sem, scope, site, op)
                    for a in m.also:
                        if not sem and not self.known(t, a):
                            detector.against(t, w, a, sem, scope, site, op)
                continue
            unknown = True
            if detector:
                detector.against(t, w, m, sem, scope, site, op)
        if detector:
            detector.note_read(t, w, bool(sem), scope, site, op, put)
        if sem:
            for i in distinct:
                if i:
                    self._observe(t, self.messages[i], sem, scope)
        if not unknown or self.mode == "sc":
            return self.newest(w, dtype)
        if len(distinct) == 1 and w.n * w.buf.cell == dtype.itemsize:
            found = self.choices(t, w)
            m = found[self.chooser.stale(t, w, len(found)) if len(found) > 1 else 0]
            return self.newest(w, dtype) if m is not None and m.id == first else self._value_of(w, m, dtype)
        return self._stale_tile(t, w, ids, dtype)

    @staticmethod
    def newest(w: Where, dtype: np.dtype) -> np.ndarray:
        """A copy of what memory holds now."""
        buf = w.buf
        if w.idx is None:
            return buf.mem[w.lo * buf.cell : w.hi * buf.cell].view(dtype).copy()
        if dtype.itemsize == buf.cell:
            return buf.typed(dtype)[w.idx]
        return np.ascontiguousarray(buf.bytes[w.idx]).reshape(-1).view(dtype)

    def _stale_tile(self, t: Thread, w: Where, ids: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The tile with some cells as they were before messages that may still be hidden from `t`."""
        values, ids, cells = w.of(w.buf.bytes).copy(), ids.copy(), w.cells()
        part = self.chooser.tile(t, w) if self.mode != "late" else 1.0
        limit = int(part * w.n + 0.5)
        todo = {i for i in np.unique(ids[:limit]).tolist() if i and self._hidden(t, self.messages[i])}
        while todo:
            m = self.messages[todo.pop()]
            at = np.flatnonzero(ids[:limit] == m.id)
            if len(at):
                ids[at], values[at] = m.before(cells[at])
                self.stale_reads += 1
                todo |= {i for i in np.unique(ids[at]).tolist() if i and self._hidden(t, self.messages[i])}
        return np.ascontiguousarray(values).reshape(-1).view(dtype)

    def choices(self, t: Thread, w: Where) -> list[Message | None]:
        """What a strong load of one location may return, newest first; None is the memory's first content."""
        found: list[Message | None] = []
        i = w.buf.last.item(w.lo)
        while i:
            m = self.messages[i]
            if w.n > 1 and not (m.where.idx is None and m.where.lo <= w.lo and w.hi <= m.where.hi):
                return found or [m]  # mixed sizes: byte-wise newest
            if self.mode != "late" or not self._hidden(t, m):
                found.append(m)
                if self.mode == "late" or not self._hidden(t, m):
                    return found
            i = m.prev if isinstance(m.prev, int) else int(m.before(np.array([w.lo]))[0][0])
        found.append(None)
        return found

    def _load_one(self, t: Thread, w: Where, dtype: np.dtype, sem: Sem, scope: Scope, site: Any, op: str) -> np.ndarray:
        top = w.buf.last.item(w.lo)
        m = self.messages[top]
        if self.detector:
            self.detector.note_read(t, w, True, scope, site, op)
        if m is None:
            return self.newest(w, dtype)
        if not self.known(t, m) and self.mode != "sc":
            found = self.choices(t, w)
            if self.detector:
                for x in found:
                    if x is not None and not self.known(t, x):
                        self.detector.against(t, w, x, sem, scope, site, op)
            m = found[self.chooser.stale(t, w, len(found)) if len(found) > 1 else 0]
        value = self.newest(w, dtype) if m is not None and m.id == top else self._value_of(w, m, dtype)
        if m is not None:
            self._observe(t, m, sem, scope)
            self._log(t, "read", m, sem, scope, site)
        return value

    def _value_of(self, w: Where, m: Message | None, dtype: np.dtype) -> np.ndarray:
        """What the location held when `m` was newest."""
        self.stale_reads += 1
        i, cells, old = w.buf.last.item(w.lo), w.cells(), None
        while i != (m.id if m is not None else 0):
            over = self.messages[i]
            if over.where.n == 1:
                i, old = over.prev, over.old
            else:
                prev, old = over.before(cells)
                i = int(prev[0])
        return np.ascontiguousarray(old).reshape(-1).view(dtype).copy()

    def _observe(self, t: Thread, m: Message, sem: Sem, scope: Scope) -> None:
        """A strong read returned `m`: acquire its records, or keep them for a fence."""
        if sem.acquires:
            t.floor = len(self.messages)
        if not (m.strong and inclusive(m.scope, m.thread, scope, t)) and m.thread is not t:
            return
        if sem.acquires:
            for record in m.records:
                self._acquire(t, record, scope)
            for records, where in list(t.pending.values()):
                if where.buf is m.where.buf and where.lo == m.where.lo:
                    for record in records:
                        self._acquire(t, record, scope)
        elif m.records:
            t.pending[m.id] = (m.records, m.where)
        if not self.known(t, m):
            t.seen.add(m.id)

    @staticmethod
    def _acquire(t: Thread, record: Record, scope: Scope) -> None:
        news = t.vc[record.thread.index] < record.clock or record.seen
        if news and inclusive(record.scope, record.thread, scope, t):
            join(t, record.vc, record.seen)

    # ------------------------------------------------------------------------------------------------------ stores
    def store(self, t: Thread, w: Where, values: np.ndarray, sem: Sem, scope: Scope, site: Any, op: str) -> Message:
        """Store 1-D `values`; a release publishes what `t` knows. Returns the message."""
        m = self._message(t, w, sem, scope, site, op, rmw=False)
        if sem:
            m.records = self._released(t, w, sem, scope)
            self._log(t, "wrote", m, sem, scope, site)
        self._append(t, m, values)
        return m

    def rmw(
        self, t: Thread, w: Where, dtype: np.dtype, change: Callable[[np.ndarray], np.ndarray | None], sem: Sem, scope: Scope,
        site: Any, op: str,
    ) -> np.ndarray:  # fmt: skip
        """Atomic read-modify-write of the newest values, which are returned. `change` returns None if nothing is stored."""
        old = self.newest(w, dtype)
        new = change(old)
        ids = w.of(w.buf.last)
        first = ids.item(0)
        found = [
            self.messages[i]
            for i in ((first,) if w.n == 1 or not (ids != first).any() else np.unique(ids).tolist())
            if i
        ]
        inherited: list[Record] = []
        for m in found:
            if m.strong and inclusive(m.scope, m.thread, scope, t):
                inherited += m.records
        if new is None:  # a failed compare-and-swap is a strong load
            if self.detector:
                for m in found:
                    if not self.known(t, m):
                        self.detector.against(t, w, m, sem, scope, site, op)
                self.detector.note_read(t, w, True, scope, site, op)
            for m in found:
                self._observe(t, m, sem, scope)
                self._log(t, "read", m, sem, scope, site)
            return old
        message = self._message(t, w, sem, scope, site, op, rmw=True)
        for m in found:
            self._observe(t, m, sem, scope)
            self._log(t, "read", m, sem, scope, site)
        message.clock, message.records = t.now, _merged([*inherited, *self._released(t, w, sem, scope)])
        self._log(t, "wrote", message, sem, scope, site)
        self._append(t, message, new)
        return old

    def _message(self, t: Thread, w: Where, sem: Sem, scope: Scope, site: Any, op: str, rmw: bool) -> Message:
        """A message for that store, with its conflicts reported. Not in memory yet."""
        detector, ids = self.detector, w.of(w.buf.last)
        first = ids.item(0)
        uniform = w.n == 1 or not (ids != first).any()
        m = Message(len(self.messages), t, w, bool(sem), rmw, scope, len(self.messages), site, op)
        m.prev = first if uniform else ids.copy()
        for i in (first,) if uniform else np.unique(ids).tolist():
            if i == 0:
                continue
            before = self.messages[i]
            if t.vc[before.agent] >= before.clock or i in t.seen:
                if (
                    detector
                    and before.agent == t.index
                    and before.clock == t.now
                    and before.where.key != w.key
                    and t.role == "tile"
                ):
                    detector.lanes(t, w, before, sem, scope, site, op)
            elif before.strong and sem and not (rmw and inclusive(before.scope, before.thread, scope, t)):
                m.also += (before,)  # a read-modify-write has observed it: whoever is ordered after one is after both
            m.also += tuple(a for a in before.also if not self.known(t, a))
            if detector and not self.known(t, before):
                detector.against(t, w, before, sem, scope, site, op)
            if detector and before.rmw and not (sem and scope is Scope.SYS):
                self._against_chain(t, w, before, sem, scope, site, op)
        if detector:
            left = detector.check_reads(t, w, sem, scope, site, op)
            w.buf.reads[slice(w.lo, w.hi) if w.idx is None else w.idx] = left
        return m

    def _against_chain(self, t: Thread, w: Where, m: Message, sem: Sem, scope: Scope, site: Any, op: str) -> None:
        """Older read-modify-writes below `m`, which `t` saw the count of but is not ordered after: one observation is no chain of them.

        Ends where `t` knows one of another work-group, since whoever told it mostly knew what came before.
        """
        while isinstance(m.prev, int) and m.prev:
            if m.thread.block != t.block and t.vc[m.agent] >= m.clock:
                return
            m = self.messages[m.prev]
            if not m.rmw:
                return
            if not self.known(t, m):
                self.detector.against(t, w, m, sem, scope, site, op)

    def _append(self, t: Thread, m: Message, values: np.ndarray) -> None:
        """Put the message into its location's history: last, or before others that its thread does not know."""
        w, buf = m.where, m.where.buf
        self.messages.append(m)
        above = self._could_precede(t, m) if self.mode == "weak" and not m.rmw else []
        depth = self.chooser.place(t, w, len(above)) if above else 0
        if depth:
            over = above[depth - 1]
            m.prev, m.old = over.prev, over.old
            over.prev, over.old = m.id, np.ascontiguousarray(values).view(np.uint8).reshape(-1, buf.cell)
            return
        where = slice(w.lo, w.hi) if w.idx is None else w.idx
        m.old = buf.bytes[where].copy()
        buf.last[where] = m.id
        if w.idx is None:
            buf.mem[w.lo * buf.cell : w.hi * buf.cell] = values.view(np.uint8)
        elif values.itemsize == buf.cell:
            buf.typed(values.dtype)[w.idx] = values
        else:
            buf.bytes[w.idx] = values.view(np.uint8).reshape(-1, buf.cell)
        buf.written = True
        self.changed.append(w)
        if self.mode == "late":
            m.reach = 2 if m.strong else 0
            if not m.reach:
                self.undelivered.append(m)

    def _could_precede(self, t: Thread, m: Message) -> list[Message]:
        """Messages from the newest down that `m` may be placed before: unknown to `t`, same cells."""
        found, i, w = [], m.prev, m.where
        while isinstance(i, int) and i:
            over = self.messages[i]
            same = over.where.lo == w.lo and over.where.hi == w.hi and over.where.idx is None and w.idx is None
            if self.known(t, over) or not same:
                break
            found.append(over)
            i = over.prev
        # Nothing may come between a read-modify-write and the message that it read.
        while found and found[-1].rmw:
            found.pop()
        return found if not any(x.rmw for x in found) else []

    # --------------------------------------------------------------------------------------------------- publishing
    def publish(self, t: Thread, scope: Scope) -> Record:
        """A record of all that `t` knows; what it does afterwards is not covered."""
        record = Record(t.vc.copy(), frozenset(t.seen), scope, t, t.now)
        t.tick()
        if self.mode == "late" and self.undelivered:
            self.deliver(lambda m: self.known(t, m), scope)
        return record

    def deliver(self, which: Callable[[Message], bool], scope: Scope = Scope.SYS) -> None:
        """Late mode: let messages reach others; woken readers see them."""
        for m in [m for m in self.undelivered if which(m)]:
            m.reach = max(m.reach, int(scope))
            self.changed.append(m.where)
            if m.reach == 2:
                self.undelivered.remove(m)

    def _released(self, t: Thread, w: Where, sem: Sem, scope: Scope) -> tuple[Record, ...]:
        """Records that a strong write carries: its own release, earlier fences, an earlier release at the same location."""
        at = (w.buf.name, w.buf.rank, w.lo)
        if sem.releases:
            record = t.released[at] = self.publish(t, scope)
            return (record, *t.fences.values()) if t.fences else (record,)
        earlier = t.released.get(at)
        return (*t.fences.values(), earlier) if earlier else tuple(t.fences.values())

    @staticmethod
    def _log(t: Thread, what: str, m: Message, sem: Sem, scope: Scope, site: Any) -> None:
        if not t.log or t.log[-1][1] is not m or t.log[-1][0] != what:
            t.log.append((what, m, sem, scope, site, t.now))


def _merged(records: list[Record]) -> tuple[Record, ...]:
    """At most one record per scope and thread: later ones of a thread cover its earlier ones."""
    if len(records) < 2:
        return tuple(records)
    latest: dict[tuple[Scope, int], Record] = {}
    for r in records:
        have = latest.get((r.scope, r.thread.index))
        if have is None or have.clock < r.clock:
            latest[r.scope, r.thread.index] = r
    return tuple(latest.values())
