"""One run of a program: the loop that picks an actor and performs its next operation."""

import zlib
from collections import deque
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from ..memory_model import Conflict, Memory, Message, Scope, Sem, Where, sync
from . import ops
from .host import Host
from .host_access import WatchHosts
from .liveness import hang_report, livelock_report
from .ops import Op
from .options import ReplayOptions
from .record import Records
from .report import Report, error_report, fault_report, race_report
from .scheduler import Adversary, Scheduler
from .workgroup import DONE, READY, SPINNING, WorkGroup
from .world import World

_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


class Stop(BaseException):
    """The run ends here: a report was made and `stop_at_first` asks for no more."""


class Run:
    """State of one run. `loop` runs it to its end, or to the first report.

    Args:
        world: memory of all ranks, fresh from `World.begin`.
        records: what is known of work-groups from earlier runs.
        seed, options: as for `replay`.
    """

    def __init__(self, world: World, records: Records, seed: int, options: ReplayOptions):
        self.record = records.root
        self.world, self.seed, self.options = world, seed, options
        self.scheduler = Scheduler(seed, world.world_size, options.personality, options.decisions)
        self.adversary = Adversary(seed, options.decisions)
        self.memory = Memory(
            self.adversary, options.memory, self._conflict if options.races else None, threads=world.world_size * (3 + 2 * options.resident)
        )  # fmt: skip
        self.hosts: list[Host] = []
        self.current: WorkGroup | None = None
        self.ready: list[Host | WorkGroup] = []
        self.spinning: list[WorkGroup] = []
        self.meeting: dict[int, WorkGroup] = {}  # at nvshmem_barrier_all, by rank
        self.in_host: Host | None = None
        self.reports: list[Report] = []
        self.steps = 0
        self.remote_stores = self.remote_flags = 0  # tiles and puts; flags raised at other ranks
        self.digest = 0xCBF29CE484222325
        self.trace: deque = deque(maxlen=options.trace)

    def watch_hosts(self) -> AbstractContextManager:
        """Context in which host programs' torch operations are accesses."""
        return WatchHosts(self) if self.options.host else nullcontext()

    def end(self) -> None:
        """Unwind whatever has not ended."""
        for host in self.hosts:
            host.kill()

    def forget(self) -> None:
        """Break the reference cycles of a run that has been told: garbage collection is too rare for thousands of runs."""
        for host in self.hosts:
            for group in host.started:
                group.__dict__.clear()
            host.symm.__dict__.clear()
            host.__dict__.clear()
        self.memory.__dict__.clear()
        self.__dict__.clear()

    # ------------------------------------------------------------------------------------------------------ reports
    def _conflict(self, conflict: Conflict) -> None:
        if conflict.buf.name in self.options.ignore or (conflict.kind == "lanes" and not self.options.lanes):
            return
        self.report(race_report(self, conflict))

    def report(self, report: Report) -> None:
        self.reports.append(report)
        if self.options.stop_at_first:
            raise Stop

    # --------------------------------------------------------------------------------------------------------- loop
    def loop(self) -> None:
        """Run all hosts and work-groups to their ends. Raises `Stop` after a report that ends the run."""
        self.ready = list(self.hosts)
        current, limit = None, self.options.max_steps
        late = self.memory.mode == "late"
        while True:
            if not self.ready:
                if not self._stalled():
                    return
                continue
            actor = self.scheduler.pick(self.ready, current)
            current = actor
            if late and self.memory.undelivered and (self.adversary.rng.next() & 255) < self.adversary.deliver:
                late_one = self.memory.undelivered[self.adversary.rng.below(len(self.memory.undelivered))]
                self.memory.deliver(lambda m, one=late_one: m is one)
                self._wake()
            if isinstance(actor, Host):
                self.adversary.actor = actor
                actor.count += 1
                actor.step(self)
            else:
                self._step(actor)
            self.steps += 1
            if self.steps > limit:
                self.report(livelock_report(self))
                return

    def _step(self, wg: WorkGroup) -> None:
        """Perform the pending operation, and local ones that follow."""
        self.current = self.adversary.actor = wg
        burst = 0
        while True:
            op = wg.pending
            wg.count += 1
            if op.kind == ops.MEET and not self._met(wg):
                return
            result = self._perform(wg, op)
            if wg.state == SPINNING:
                self.ready.remove(wg)
                self.spinning.append(wg)
            if self.memory.changed:
                self._wake()
            if self.advance(wg, result) is None:
                return
            op, burst = wg.pending, burst + 1
            if wg.state == SPINNING or burst > 64 or not (op.local or self._private(op)):
                return

    def _met(self, wg: WorkGroup) -> bool:
        """nvshmem_barrier_all: completes the puts of one work-group of every rank, then all of them go on."""
        self.meeting[wg.rank] = wg
        if len(self.meeting) < self.world.world_size:
            self.ready.remove(wg)
            return False
        groups, self.meeting = list(self.meeting.values()), {}
        for g in groups:
            for engine in g.nics.values():
                engine.complete(g.threads)
        sync.together(self.memory, [t for g in groups for t in g.threads], Scope.SYS)
        for g in groups:
            self._news(g)
            if g is not wg:
                self.ready.append(g)
                self.advance(g, None)
        return True

    @staticmethod
    def _private(op: Op) -> bool:
        """Plain access to memory that other ranks cannot reach: when it happens does not matter to anyone else."""
        return not op.sem and op.where is not None and not op.where.buf.shared and op.source is None

    def advance(self, wg: WorkGroup, result: np.ndarray | None, first: bool = False) -> Op | None:
        """Let the work-group say what it does next; its end frees its slot."""
        self.current = wg
        try:
            op = wg.start() if first else wg.advance(result)
        except Exception as error:  # noqa: BLE001 (whatever a kernel raises is a finding)
            self.failed(wg, error)
        if op is None:
            self._ended(wg)
        return op

    def failed(self, actor: Host | WorkGroup, error: Exception) -> None:
        """The program itself raised: report it and end the run."""
        self.reports.append(error_report(self, actor, error))
        raise Stop from error

    def admit(self, wg: WorkGroup) -> None:
        """A slot is free: the work-group starts."""
        wg.state = READY
        self.ready.append(wg)
        self.advance(wg, None, first=True)

    def _ended(self, wg: WorkGroup) -> None:
        where = self.ready if wg in self.ready else self.spinning
        where.remove(wg)
        wg.state = DONE
        host = self.hosts[wg.rank]
        sync.follow(self.memory, host.thread, wg.threads, Scope.SYS)
        if wg.tma is not None:  # the end of a kernel waits for its asynchronous stores, not for its puts
            wg.tma.complete((host.thread,))
        host.engines += wg.nics.values()
        host.group_ended(self, wg)

    def _wake(self) -> None:
        """Spinning work-groups that could see something new go on."""
        changed, self.memory.changed = self.memory.changed, []
        if not self.spinning:
            return
        for wg in [wg for wg in self.spinning if any(_overlap(a, b) for a, _ in wg.waits for b in changed)]:
            self.spinning.remove(wg)
            self.ready.append(wg)
            wg.state, wg.idle, wg.grace = READY, 0, 0
            wg.polls.clear()

    def _stalled(self) -> bool:
        """Nobody can run. True if somebody can now; a hang is reported."""
        if self.memory.undelivered:
            self.memory.deliver(lambda m: True)
            self._wake()
            if self.ready:
                return True
        if all(h.finished for h in self.hosts):
            return False
        patient = [wg for wg in self.spinning if wg.grace < self.options.grace]
        if not patient:
            self.report(hang_report(self))
            return False
        self.adversary.eager = True
        for wg in patient:  # each once more, with everything visible
            if wg.state != SPINNING:
                continue
            wg.grace += 1
            self.spinning.remove(wg)
            self.ready.append(wg)
            wg.state = READY
            self._step(wg)
            if wg.state == READY and wg.idle == 0:
                break
        self.adversary.eager = False
        return True

    # ---------------------------------------------------------------------------------------------------- operations
    def _perform(self, wg: WorkGroup, op: Op) -> np.ndarray | None:
        kind, memory = op.kind, self.memory
        w = op.where
        result: np.ndarray | None = None
        if kind == ops.LOAD:
            t = wg.lead if op.lead else wg.tile
            result = memory.load(t, w, op.dtype, op.sem, op.scope, op.site, op.name)
            if op.everyone and w.buf.last.item(w.lo) and wg.tile.log:
                seen = wg.tile.log[-1][1]
                if seen.where.buf is w.buf:
                    memory._observe(wg.lead, seen, op.sem, op.scope)
            self._poll(wg, op, result)
            self._mark(wg, op, zlib.crc32(result.tobytes()) if op.scalar and w.buf.shared else w.buf.last.item(w.lo))
        elif kind == ops.STORE:
            memory.store(wg.lead if op.lead else wg.tile, w, op.values, op.sem, op.scope, op.site, op.name)
            if w.buf.rank != wg.rank:
                self.remote_stores += 1
            self._news(wg)
            self._mark(wg, op, len(memory.messages))
        elif kind == ops.RMW:
            before = len(memory.changed)
            # A tile atomic that releases or acquires does so for its own lane's thread, not for the whole tile.
            t = wg.lead if op.lead else wg.tile if op.sem is Sem.RELAXED else wg.lanes
            result = memory.rmw(t, w, op.dtype, op.change, op.sem, op.scope, op.site, op.name)
            if len(memory.changed) > before and (memory.newest(w, op.dtype) != result).any():
                self._news(wg)
                self.remote_flags += w.buf.rank != wg.rank
            else:  # stored nothing new: nobody's wait can end by it
                del memory.changed[before:]
                self._poll(wg, op, result)
            self._mark(wg, op, zlib.crc32(result.tobytes()) if op.scalar else len(memory.messages))
        elif kind == ops.BARRIER:
            sync.block_barrier(memory, wg.threads)
        elif kind == ops.FENCE:
            for t in wg.threads:
                sync.fence(memory, t, op.scope, sc=bool(op.values is not None))
        elif kind == ops.PUT:
            self._put(wg, op)
        elif kind == ops.SIGNAL:
            self.remote_flags += op.peer != wg.rank
            wg.nic(op.peer).signal(wg.lead, w, op.change, op.dtype, None, op.site, op.name)
            self._news(wg)
            self._mark(wg, op, len(memory.messages))
        elif kind == ops.ORDER:
            for engine in wg.nics.values():
                engine.ordered()
        elif kind == ops.QUIET:
            for engine in wg.nics.values():
                engine.complete(wg.threads)
        elif kind == ops.ASYNC:
            wg.tma_engine().copy(wg.lead, op.source, w, op.values, op.dtype, op.site, op.name)
            self._news(wg)
            self._mark(wg, op, len(memory.messages))
        elif kind == ops.ASYNC_WAIT:
            if wg.tma is not None:
                wg.tma.complete((wg.lead,))
        elif kind == ops.PAUSE:
            result = None if op.values is None else np.array([self.steps * 1000])
        elif kind == ops.FAULT:
            self.reports.append(fault_report(self, wg, op))
            raise Stop
        if op.joins:
            sync.block_barrier(memory, wg.threads)
        if self.options.trace and not self._private(op):
            self.trace.append((wg, op, result))
        return result

    def _put(self, wg: WorkGroup, op: Op) -> None:
        """Copy to a peer by the NIC; with a flag, raise it after this copy's own data."""
        engine, source, values = wg.nic(op.peer), op.source, None
        if op.lead:  # blocking: the source has been read when the call returns
            values, source = (
                self.memory.load(wg.lead, source, op.dtype, Sem.PLAIN, Scope.SYS, op.site, f"{op.name} (source)"),
                None,
            )
        data: Message = engine.copy(wg.lead, source, op.where, values, op.dtype, op.site, op.name)
        self._mark(wg, op, data.id)
        self._news(wg)
        self.remote_stores += op.where.buf.rank != wg.rank
        if op.values is not None:
            self.remote_flags += 1
            flag, change, dtype = op.values
            engine.signal(wg.lead, flag, change, dtype, data, op.site, op.name)

    def _mark(self, wg: WorkGroup, op: Op, value: int) -> None:
        """Take the operation into the digest: who, what, where and, of scalars, which value."""
        h = ((((self.digest ^ wg.mark) * _PRIME ^ op.mark) * _PRIME) ^ value) * _PRIME & _MASK
        self.digest = h ^ (h >> 32)

    # ------------------------------------------------------------------------------------------------------ spinning
    def _news(self, wg: WorkGroup) -> None:
        wg.idle = 0
        wg.polls.clear()

    def _poll(self, wg: WorkGroup, op: Op, result: np.ndarray) -> None:
        """A read that brings what the same read brought before, again and again: set the work-group aside."""
        w, memory = op.where, self.memory
        if not (w.buf.shared or w.buf.written):
            return
        key = (op.site, w.buf.name, w.buf.rank, w.lo)
        value = result.tobytes() if op.scalar else w.buf.last.item(w.lo)
        before = wg.polls.get(key)
        if before is None or before[0] != value:
            wg.idle = 0
            wg.polls[key] = (value, w, op)
            return
        wg.idle += 1
        if wg.idle < max(len(wg.polls), 2):
            return
        if op.scalar and memory.newest(w, op.dtype).tobytes() != value:
            return  # there is something newer to see: it is not stuck
        wg.state = SPINNING
        wg.waits = [(where, read) for _, where, read in wg.polls.values()]


def _overlap(a: Where, b: Where) -> bool:
    return a.buf is b.buf and a.lo < b.hi and b.lo < a.hi
