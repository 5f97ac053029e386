"""Work-groups of one rank: a greenlet each, as many at a time as are resident, switching at random memory operations."""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator

import greenlet
import numpy as np

from .. import sites
from ..errors import EmulatorError, Hang, ProgramFailed
from ..heap import Allocator
from .memory import Memory
from .stores import Pending

_WORD = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
_YIELDS = 20  # rounds of the idle loop before it sleeps
_WAKE = 32  # rounds after which a waiting work-group looks for itself: it may count its tries or watch the clock


class WorkGroup:
    """One physical work-group running one program of a grid.

    Attributes:
        key: (launch, linear program id); `program`: its id in each dimension.
        barriers: block barriers passed.
        polled: address -> value of strong reads since it last changed memory; `repeats`: reads that brought nothing new.
        last: of its last operation, if that was a plain scalar load.
    """

    __slots__ = (
        "_address", "_seen", "_word", "barriers", "greenlet", "key", "last", "pending", "polled", "program", "repeats",
    )  # fmt: skip

    def __init__(self, key: tuple[int, int], program: tuple[int, int, int], pending: Pending):
        self.key, self.program, self.pending = key, program, pending
        self.barriers = self.repeats = 0
        self.polled: dict[int, bytes] = {}
        self.last: tuple[int, bytes] | None = None
        self.greenlet: greenlet.greenlet | None = None
        self._word: ctypes._SimpleCData | None = None
        self._address = self._seen = 0

    def forget(self) -> None:
        """It did something else than polling."""
        self.polled.clear()
        self.last, self.repeats = None, 0

    @property
    def resting(self) -> bool:
        """It has polled all its places several times, in vain."""
        return self.repeats > 4 * max(1, len(self.polled))

    def wait_for(self, address: int, seen: np.ndarray) -> None:
        """Not ready until the word at `address` differs from `seen`."""
        self._address, self._seen = address, int.from_bytes(seen.tobytes(), sys.byteorder)
        self._word = _WORD[seen.itemsize].from_address(address)

    def ready(self) -> bool:
        """Whether there is any point in running it."""
        if self._word is None:
            return True
        if self._word.value == self._seen:
            return False
        self.wake()
        return True

    def wake(self) -> None:
        """Let it look for itself."""
        self._word = None
        self.forget()

    def watched(self) -> list[tuple[int, int]]:
        """(address, value seen) of what it waits for."""
        if self._word is not None:
            return [(self._address, self._seen)]
        return [(a, int.from_bytes(v[:8], sys.byteorder)) for a, v in self.polled.items()]


class Scheduler:
    """Runs the launches of one rank's program, one after another. `groups` are those that run or have stores under way."""

    def __init__(self, memory: Memory, resident: int, allocator: Allocator):
        self.memory, self.resident, self.allocator = memory, resident, allocator
        memory.scheduler = self
        self.groups: list[WorkGroup] = []
        self.live: list[WorkGroup] = []
        self.grid = (1, 1, 1)
        self.kernel = ""
        self._rounds = self._launches = 0
        self._held = self._hold = 0

    def run(self, body: Callable[[], object], kernel: str, grid: tuple[int, int, int]) -> None:
        """Run every program of the grid; at the end of the kernel all its stores have arrived.

        Raises what a work-group raised, as an `EmulatorError` that names it, and `Hang` when told to stop.
        """
        self.kernel, self.grid = kernel, grid
        self._launches += 1
        self.memory.counts.launches += 1
        x, y, z = grid
        programs = iter([(i, j, k) for i in range(x) for j in range(y) for k in range(z)])
        hub = greenlet.getcurrent()
        try:
            for program in programs:
                self._start(body, program, hub)
                if len(self.live) == self.resident:
                    break
            while self.live:
                self.memory.wg = self._pick()
                self.memory.wg.greenlet.switch()
                self._finished(body, programs, hub)
            for wg in self.groups:
                wg.pending.force(lambda store: True)
            self.memory.changed()
        except Hang:
            raise
        except Exception as error:
            raise self._named(error) from error
        finally:
            self.memory.control.idle = 0
            for wg in self.live:
                if wg.greenlet:
                    wg.greenlet.throw(greenlet.GreenletExit)
            self.live, self.groups, self.memory.wg = [], [], None

    def _start(self, body: Callable[[], object], program: tuple[int, int, int], hub: greenlet.greenlet) -> None:
        def run() -> None:
            with np.errstate(all="ignore"):  # numpy keeps this per greenlet
                body()

        x, y, z = program
        key = (self._launches, (x * self.grid[1] + y) * self.grid[2] + z)
        wg = WorkGroup(key, program, Pending(self.memory.arrived))
        wg.greenlet = greenlet.greenlet(run, hub)
        self.groups.append(wg)
        self.live.append(wg)

    def _finished(
        self, body: Callable[[], object], programs: Iterator[tuple[int, int, int]], hub: greenlet.greenlet
    ) -> None:
        """A greenlet ended (only then does its parent go on): its slot is free for the next program."""
        wg = self.memory.wg
        self.live.remove(wg)
        self.memory.changed()
        if not wg.pending.stores:
            self.groups.remove(wg)
        program = next(programs, None)
        if program is not None:
            self._start(body, program, hub)

    # ---- who runs
    def _go(self, wg: WorkGroup) -> None:
        memory = self.memory
        if wg is not memory.wg:
            memory.counts.switches += 1
            memory.wg = wg
            wg.greenlet.switch()

    def switch(self) -> None:
        """Maybe another work-group goes on."""
        if len(self.live) > 1:
            self._go(self._pick())

    def leave(self) -> None:
        """The running work-group waits: another one goes on, or time passes."""
        self._go(self._pick())

    def rest(self) -> None:
        """The running work-group polls several places in vain: others first; if all do, time passes."""
        others = [w for w in self.live if w is not self.memory.wg and w.ready()]
        fresh = [w for w in others if not w.resting]
        if fresh:
            self._go(fresh[self.memory.below(len(fresh))])
            return
        self._pass_time()
        if others:
            self._go(others[self.memory.below(len(others))])

    def _pick(self) -> WorkGroup:
        """A random work-group that can run. While there is none, what is under way arrives, then others get the processor."""
        while True:
            ready = [w for w in self.live if w.ready()]
            if ready:
                if self._rounds and not all(w.resting for w in ready):
                    self._rounds = 0
                    self.memory.control.idle = 0
                return ready[self.memory.below(len(ready))] if len(ready) > 1 else ready[0]
            self._pass_time()
            if self._rounds % _WAKE == 0:
                wg = self.live[self.memory.below(len(self.live))]
                wg.wake()
                return wg

    def _pass_time(self) -> None:
        """Everybody waits: after a while something that is under way arrives; the others get the processor meanwhile."""
        memory = self.memory
        self._held += 1
        if self._held > self._hold:
            self._held, self._hold = 0, memory.below(memory.patience + 1)
            if memory.deliver():
                self._rounds = min(self._rounds, _YIELDS)
                os.sched_yield()
                return
        control = memory.control
        if not memory.under_way():
            control.idle += 1
        if control.stop:
            raise Hang("\n".join(self.describe()))
        self._rounds += 1
        if self._rounds < _YIELDS:
            os.sched_yield()
        else:
            time.sleep(min(1e-3, 2e-5 * 2 ** ((self._rounds - _YIELDS) // 16)))

    # ---- words
    def describe(self) -> list[str]:
        """One line for each work-group that has not finished: where it stands and what it waits for."""
        lines = []
        for wg in self.live:
            running = wg is self.memory.wg
            frame = sys._getframe(1) if running else wg.greenlet.gr_frame if wg.greenlet else None
            where = sites.text(sites.chain(frame)) if frame is not None else "its start"
            seen = ", ".join(f"{self._name(a)} = {value}" for a, value in wg.watched())
            what = f"waits for {seen}" if seen else "runs"
            lines.append(f"rank {self.memory.rank} work-group {wg.key[1]} of {self.kernel} {what}, at {where}")
        return lines

    def _name(self, address: int) -> str:
        heaps = self.memory.heaps
        for rank, base in enumerate(heaps.bases):
            if base <= address < base + heaps.nbytes:
                whose = "" if rank == self.memory.rank else f" of rank {rank}"
                return self.allocator.describe(address - base) + whose
        return f"address {address:#x}"

    def _named(self, error: Exception) -> EmulatorError:
        wg = self.memory.wg
        where = sites.text(sites.of_exception(error))
        kind = type(error) if isinstance(error, EmulatorError) else ProgramFailed
        text = str(error) if isinstance(error, EmulatorError) else f"{type(error).__name__}: {error}"
        return kind(f"work-group {wg.key[1] if wg else '?'} of {self.kernel}: {text}, at {where}")
