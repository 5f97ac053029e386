"""The backend of `processes` mode: stores arrive late and out of order, everything else acts on shared memory at once.

What makes a work-group's stores arrive, and which:

| operation                          | its own stores that are in other threads' sight afterwards                           |
|------------------------------------|--------------------------------------------------------------------------------------|
| release at SYS                     | tiles stored before its last block barrier; all scalars; what its rank's WGs published |
| release at GPU                     | the same, to this rank's memory; those to others are *published*                     |
| release of a whole tile            | all, since every thread releases its own                                             |
| fence at SYS / GPU                 | as a release; tiles stored since the last barrier, at the next barrier                |
| load or atomic of the same bytes   | those that overlap                                                                   |
| end of the kernel                  | all                                                                                  |

A release covers tiles only up to the last barrier because it is done by one thread: Triton 3.6 to 3.8 put no barrier in front of
it. *Published* stores arrive with the next release at SYS of any work-group of the rank: cumulativity, taken generously.
Loads are never stale and relaxed atomics act at once: `replay` mode attacks those.
"""

import ctypes
import random
import time
from typing import TYPE_CHECKING

import numpy as np

from ..backend import Lanes, Rmw, Scope, Sem
from ..errors import BadAddress
from ..heap import Heaps
from ..interpreter import raw_cas, raw_load, raw_rmw, raw_store
from ..numerics import combine
from .network import Nic
from .options import Counts, Options
from .stores import Store

_Byte = ctypes.c_uint8

if TYPE_CHECKING:
    from .scheduler import Scheduler, WorkGroup


class Memory:
    """`emulator.backend.Backend` for one rank and one program. See `Options` for the adversary."""

    def __init__(self, rank: int, heaps: Heaps, options: Options, seed: int):
        self.rank, self.world_size, self.heaps, self.options = rank, heaps.ranks, heaps, options
        self.random = random.Random((seed << 20) ^ (rank << 8) ^ 0x5EED)
        self._bits = self.random.getrandbits
        personality = random.Random(seed)  # the same on every rank
        self.p_deliver = personality.choice((1, 2, 8, 32)) if options.deliver is None else options.deliver
        self.p_switch = personality.choice((16, 64, 256)) if options.switch is None else options.switch
        self.newest_first = personality.choice((True, False))  # flags come after data: let them overtake
        self.patience = personality.choice((0, 40, 60)) if options.deliver is None else 0
        self.control = heaps.control(rank)
        self.counts = Counts()
        self.scheduler: Scheduler | None = None
        self.wg: WorkGroup | None = None
        self.nic = Nic(self)

    # ---- used by all parts
    def below(self, n: int) -> int:
        """A random integer in [0, n)."""
        return self._bits(24) % n

    def running(self) -> "WorkGroup":
        """The work-group that runs."""
        return self.wg

    def changed(self) -> None:
        """Memory changed: the run makes progress."""
        self.control.progress += 1

    def owner(self, low: int, high: int) -> int:
        """As `Heaps.owner`."""
        return self.heaps.owner(low, high)

    def peer_address(self, address: int, nbytes: int, peer: int) -> int:
        """This process's address of what `peer` keeps where this rank keeps `address`. Raises `BadAddress`."""
        if not 0 <= peer < self.world_size:
            raise BadAddress(f"peer is {peer}; allowed: 0 to {self.world_size - 1}")
        if self.heaps.owner(address, address + nbytes) != self.rank:
            raise BadAddress(
                f"address {address:#x} is not in this rank's own symmetric heap, as NVSHMEM's targets must be"
            )
        return address - self.heaps.bases[self.rank] + self.heaps.bases[peer]

    def step(self, changes: bool = False) -> None:
        """Before each operation: something may arrive, another work-group may go on."""
        self.counts.operations += 1
        bits = self._bits(16)
        if (bits & 255) < self.p_deliver:
            self.deliver()
        if (bits >> 8) < self.p_switch:
            self.scheduler.switch()
        wg = self.wg
        if changes:
            wg.forget()
            self.control.progress += 1

    def deliver(self) -> bool:
        """Let one store or part of a transfer arrive, if anything is under way."""
        sources = [wg for wg in self.scheduler.groups if wg.pending.stores]
        n = len(sources)
        chosen = self.below(n + 1) if self.nic.transfers else (self.below(n) if n > 1 else 0)
        if chosen < n:
            pending = sources[chosen].pending
            pending.deliver(self._chosen(len(pending.stores)))
            self.counts.late += 1
            return True
        return self.nic.deliver()

    def under_way(self) -> bool:
        """Whether anything can still arrive."""
        return bool(self.nic.transfers) or any(wg.pending.stores for wg in self.scheduler.groups)

    def _chosen(self, n: int) -> int:
        """Which of `n` stores, oldest first, arrives next."""
        if n > 1 and self.newest_first and self._bits(2):
            return n - 1
        return self.below(n) if n > 1 else 0

    def arrived(self, store: Store) -> None:
        """Counts a store that is in memory now."""
        if store.counts and store.owner >= 0 and store.owner != self.rank:
            self.counts.remote_stores += 1
        self.control.progress += 1

    def park(self, address: int, seen: np.ndarray) -> None:
        """Set the running work-group aside until the bytes at `address` differ from `seen` (or now and then)."""
        self.wg.wait_for(address, seen)
        self.scheduler.leave()

    def _polled(self, address: int, values: np.ndarray) -> None:
        """A read that nothing but polling would repeat: after the third time with the same value the work-group steps aside."""
        wg = self.wg
        key = values.tobytes()
        if wg.polled.get(address) != key:
            wg.polled[address] = key
            wg.repeats = 0
            return
        wg.repeats += 1
        if wg.repeats < 2:
            return
        if len(wg.polled) == 1 and len(values) == 1:
            self.park(address, values)
        elif wg.resting:  # polls several places in turn: let others run, look again
            self.scheduler.rest()

    @staticmethod
    def _span(addresses: np.ndarray, itemsize: int) -> tuple[int, int]:
        if len(addresses) == 1:
            low = int(addresses[0])
            return low, low + itemsize
        return int(addresses.min()), int(addresses.max()) + itemsize

    # ---- Backend
    def program_id(self, axis: int) -> int:
        return self.wg.program[axis]

    def num_programs(self, axis: int) -> int:
        return self.scheduler.grid[axis]

    def clock(self) -> int:
        self.step()
        return time.monotonic_ns()

    def pause(self, nanoseconds: int) -> None:
        self.step()
        self.scheduler.switch()

    def load(self, addresses: np.ndarray, dtype: np.dtype, sem: Sem, scope: Scope, lanes: Lanes) -> np.ndarray:
        self.step()
        low, high = self._span(addresses, dtype.itemsize)
        self.heaps.owner(low, high)
        pending = self.wg.pending
        if pending.stores:
            pending.settle(low, high)
        values = raw_load(addresses, dtype)
        if sem is not Sem.PLAIN:
            self._polled(low, values)
        elif len(addresses) == 1:
            self._spun(low, values)
        else:
            self.wg.forget()
        return values

    def _spun(self, address: int, values: np.ndarray) -> None:
        """A plain scalar load: only the very same one, again and again and nothing between, is a spin."""
        wg = self.wg
        key = (address, values.tobytes())
        if wg.last != key:
            wg.last, wg.repeats = key, 0
            return
        wg.repeats += 1
        if wg.repeats >= 4:
            self.park(address, values)

    def store(self, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes) -> None:
        self.step(changes=True)
        if sem is Sem.PLAIN:
            self._later(addresses, values, len(addresses) == 1, False)
            return
        low, high = self._span(addresses, values.itemsize)
        owner = self.heaps.owner(low, high)
        self.wg.pending.settle(low, high)
        if sem.releases:
            self._release(scope, len(addresses) > 1)
        raw_store(addresses, values)
        self.counts.flags_delivered += owner >= 0 and owner != self.rank

    def store_async(self, addresses: np.ndarray, values: np.ndarray, lanes: Lanes) -> None:
        self.step(changes=True)
        self._later(addresses, values, False, True)

    def _later(self, addresses: np.ndarray, values: np.ndarray, lead: bool, unsent: bool) -> None:
        wg, itemsize = self.wg, values.itemsize
        low, high = self._span(addresses, itemsize)
        owner = self.heaps.owner(low, low + itemsize)
        if owner != self.heaps.owner(high - itemsize, high):  # lanes of one tile go to several ranks
            owners = np.array([self.heaps.owner(a, a + itemsize) for a in addresses.tolist()])
            for o in np.unique(owners):
                self._later(addresses[owners == o], values[owners == o], lead, unsent)
            return
        if owner < 0:  # a wild address shall crash here, where the traceback names the kernel's line
            _ = _Byte.from_address(low).value, _Byte.from_address(high - 1).value
        pending = wg.pending
        parts = (1, 1, 2, 4)[self._bits(2)]
        pending.add(Store(addresses, values, low, high, owner, wg.barriers, lead, unsent), parts)
        while len(pending.stores) > self.options.pending:
            pending.deliver(self._chosen(len(pending.stores)))

    def wait_async(self, reading_only: bool) -> None:
        self.step()
        if not reading_only:
            wg = self.wg
            for store in wg.pending.stores:
                if store.unsent:
                    store.unsent, store.barriers = False, wg.barriers

    def _release(self, scope: Scope, every: bool = False) -> None:
        """Releases what its thread may: see above. `every`: done by all threads, each for its own stores."""
        if scope is Scope.CTA:
            return
        wg = self.wg
        for store in wg.pending.stores:
            if not store.unsent and (every or store.lead or store.barriers < wg.barriers):
                store.published = True
        self._publish(wg, scope)
        if scope is Scope.SYS:
            for other in self.scheduler.groups:
                if other is not wg and other.pending.stores:
                    other.pending.force(lambda s: s.published)

    def _publish(self, wg: "WorkGroup", scope: Scope) -> None:
        """Published stores arrive: everywhere, or at GPU scope in this rank's own memory."""
        if wg.pending.stores:
            own = (-1, self.rank)
            wg.pending.force(lambda s: s.published and (scope is Scope.SYS or s.owner in own))

    def _atomic(self, addresses: np.ndarray, itemsize: int, sem: Sem, scope: Scope) -> tuple[int, int]:
        """Everything before an atomic acts: (first byte, owner)."""
        self.step()
        low, high = self._span(addresses, itemsize)
        owner = self.heaps.owner(low, high)
        if self.wg.pending.stores:
            self.wg.pending.settle(low, high)
        if sem.releases:
            self._release(scope, len(addresses) > 1)
        return low, owner

    def _effect(self, low: int, owner: int, old: np.ndarray, changed: bool) -> None:
        if not changed:
            self._polled(low, old)
            return
        self.wg.forget()
        self.counts.flags_delivered += owner >= 0 and owner != self.rank
        self.control.progress += 1

    def atomic_rmw(
        self, op: Rmw, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        if len(addresses) > 1:
            low, high = self._span(addresses, values.itemsize)
            if self.heaps.owner(low, low + 1) != self.heaps.owner(high - 1, high):  # flags of several ranks: one by one
                each = zip(np.split(addresses, len(addresses)), np.split(values, len(values)), strict=True)
                return np.concatenate([self.atomic_rmw(op, a, v, sem, scope, lanes) for a, v in each])
        quiet = op is Rmw.ADD and not values.any()
        low, owner = self._atomic(addresses, values.itemsize, sem, scope)
        if quiet:  # Triton compiles it to a strong load
            old = raw_load(addresses, values.dtype)
            self._effect(low, owner, old, False)
            return old
        old = raw_rmw(op, addresses, values)
        changed = op is Rmw.ADD or bool((combine(op, old, values) != old).any())
        self._effect(low, owner, old, changed)
        return old

    def atomic_cas(
        self, addresses: np.ndarray, expected: np.ndarray, desired: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        low, owner = self._atomic(addresses, desired.itemsize, sem, scope)
        old = raw_cas(addresses, expected, desired)
        self._effect(low, owner, old, bool(((old == expected) & (expected != desired)).any()))
        return old

    def barrier(self) -> None:
        self.step()
        wg = self.wg
        wg.barriers += 1
        for scope in (Scope.GPU, Scope.SYS):
            fenced = [s for s in wg.pending.stores if s.fenced is scope]
            if fenced:
                for store in fenced:
                    store.published = True
                self._publish(wg, scope)

    def fence(self, scope: Scope, sc: bool) -> None:
        self.step()
        if scope is Scope.CTA:
            return
        for store in self.wg.pending.stores:
            if not store.unsent and store.fenced is not Scope.SYS:
                store.fenced = scope
        self._release(scope)

    def before_transfer(self, low: int, high: int, block: bool) -> None:
        """A NIC is about to use bytes [low, high): it sees stores that its issuer's block barrier ordered (or its own, if not `block`)."""
        wg = self.wg
        wg.pending.force(
            lambda s: s.low < high and low < s.high and not s.unsent and (block or s.lead or s.barriers < wg.barriers)
        )
