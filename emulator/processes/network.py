"""The rank's NIC: puts, gets and signals of NVSHMEM, performed later and out of order unless fenced."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..backend import Compare, Rmw, Scope, Signal
from ..interpreter import raw_load, raw_rmw

if TYPE_CHECKING:
    from .memory import Memory

_COMPARE: dict[Compare, Callable[[int, int], bool]] = {
    Compare.EQ: int.__eq__,
    Compare.NE: int.__ne__,
    Compare.GT: int.__gt__,
    Compare.GE: int.__ge__,
    Compare.LT: int.__lt__,
    Compare.LE: int.__le__,
}

_DEPTH = 64  # transfers under way at a time


class Transfer:
    """One operation under way.

    Attributes:
        issuer: key of the work-group; `peer`; `fence`: fences that it had issued before.
        parts: (target, source, bytes) as this process maps them, still to be copied, in any order.
        data: what a blocking put read at issue; its parts index into it.
        signal: (address here, value, add), applied when all parts are copied.
        outgoing: writes the peer's memory.
    """

    __slots__ = ("data", "fence", "issuer", "outgoing", "parts", "peer", "signal")

    def __init__(self, issuer: object, peer: int, fence: int, outgoing: bool):
        self.issuer, self.peer, self.fence, self.outgoing = issuer, peer, fence, outgoing
        self.parts: list[tuple[int, int, int]] = []
        self.data: ctypes.Array | None = None
        self.signal: Signal | None = None


class Nic:
    """NVSHMEM's device side for one rank (`emulator.backend.Nic`). Its transfers outlive the kernel that issued them.

    The emulated order: transfers of one work-group to one peer are performed in any order, except across its `fence`s; a
    put's signal comes after its data; parts of a put arrive separately. `quiet` completes the calling work-group's.
    """

    def __init__(self, memory: "Memory"):
        self.memory = memory
        self.transfers: list[Transfer] = []
        self._fences: dict[object, int] = {}

    def my_pe(self) -> int:
        return self.memory.rank

    def n_pes(self) -> int:
        return self.memory.world_size

    def _there(self, address: int, nbytes: int, peer: int) -> int:
        """Where this process maps the peer's copy of a symmetric address of its own."""
        return self.memory.peer_address(address, nbytes, peer)

    def _split(self, transfer: Transfer, target: int, source: int, nbytes: int) -> None:
        parts = 1 if nbytes < 16 else (1, 2, 4)[self.memory.below(3)]
        step = -(-nbytes // parts // 8) * 8
        for start in range(0, nbytes, step or 1):
            transfer.parts.append((target + start, source + start, min(step, nbytes - start)))

    def _new(self, peer: int, outgoing: bool) -> Transfer:
        key = self.memory.running().key
        return Transfer(key, peer, self._fences.get(key, 0), outgoing)

    def _issue(self, transfer: Transfer) -> None:
        while len(self.transfers) >= _DEPTH:
            self.deliver()
        self.transfers.append(transfer)

    def put(
        self, target: int, source: int, nbytes: int, peer: int, signal: Signal | None, blocking: bool, block: bool
    ) -> None:
        memory = self.memory
        memory.step(changes=True)
        transfer = self._new(peer, True)
        there = self._there(target, nbytes, peer)
        if nbytes:
            memory.owner(source, source + nbytes)
            memory.before_transfer(source, source + nbytes, block)
            if blocking:
                transfer.data = (ctypes.c_uint8 * nbytes)()
                ctypes.memmove(transfer.data, source, nbytes)
                source = ctypes.addressof(transfer.data)
            self._split(transfer, there, source, nbytes)
        if signal is not None:
            transfer.signal = signal._replace(address=self._there(signal.address, 8, peer))
        self._issue(transfer)

    def get(self, target: int, source: int, nbytes: int, peer: int, blocking: bool, block: bool) -> None:
        memory = self.memory
        memory.step(changes=True)
        transfer = self._new(peer, False)
        there = self._there(source, nbytes, peer)
        memory.owner(target, target + nbytes)
        memory.before_transfer(target, target + nbytes, True)
        self._split(transfer, target, there, nbytes)
        self._issue(transfer)
        if blocking:
            self.complete(lambda t: t is transfer)

    def signal(self, signal: Signal, peer: int) -> None:
        self.memory.step(changes=True)
        transfer = self._new(peer, True)
        transfer.signal = signal._replace(address=self._there(signal.address, 8, peer))
        self._issue(transfer)

    def wait_until(self, address: int, dtype: np.dtype, compare: Compare, value: int) -> int:
        memory = self.memory
        memory.owner(address, address + dtype.itemsize)
        place = np.array([address], np.uint64)
        wanted = int(np.array([value & (1 << 8 * dtype.itemsize) - 1], f"u{dtype.itemsize}").view(dtype)[0])
        while True:
            memory.step()
            seen = raw_load(place, dtype)
            if _COMPARE[compare](int(seen[0]), wanted):
                return int(seen[0])
            memory.park(address, seen)

    def fence(self) -> None:
        self.memory.fence(Scope.SYS, True)
        key = self.memory.running().key
        self._fences[key] = self._fences.get(key, 0) + 1

    def quiet(self) -> None:
        self.memory.fence(Scope.SYS, True)
        key = self.memory.running().key
        self.complete(lambda t: t.issuer == key)

    def barrier_all(self) -> None:
        memory = self.memory
        self.quiet()
        counter = memory.heaps.bases[0] + type(memory.control).barrier.offset
        place, one = np.array([counter], np.uint64), np.ones(1, np.uint64)
        arrived = int(raw_rmw(Rmw.ADD, place, one)[0]) + 1
        memory.changed()
        goal = -(-arrived // memory.world_size) * memory.world_size
        while True:
            memory.step()
            seen = raw_load(place, np.dtype(np.uint64))
            if int(seen[0]) >= goal:
                return
            memory.park(counter, seen)

    # ---- performing
    def _blocked(self, transfer: Transfer) -> bool:
        return any(
            t.fence < transfer.fence and t.issuer == transfer.issuer and t.peer == transfer.peer for t in self.transfers
        )

    def deliver(self) -> bool:
        """Perform one part of one transfer that may go on; False if there is none."""
        if not self.transfers:
            return False
        ready = [t for t in self.transfers if not self._blocked(t)]
        self._advance(ready[self.memory.below(len(ready))])
        return True

    def _advance(self, transfer: Transfer) -> None:
        memory = self.memory
        remote = transfer.outgoing and transfer.peer != memory.rank
        if transfer.parts:
            target, source, nbytes = transfer.parts.pop(memory.below(len(transfer.parts)))
            ctypes.memmove(target, source, nbytes)
            if not transfer.parts and remote:
                memory.counts.remote_stores += 1
        elif transfer.signal is not None:
            signal = transfer.signal
            place, value = np.array([signal.address], np.uint64), np.array([signal.value], np.uint64)
            raw_rmw(Rmw.ADD if signal.add else Rmw.XCHG, place, value)
            transfer.signal = None
            memory.counts.flags_delivered += remote
        if not transfer.parts and transfer.signal is None:
            self.transfers.remove(transfer)
        memory.changed()

    def complete(self, which: Callable[[Transfer], bool] | None = None) -> None:
        """Perform all transfers, or those that `which` names and what they must come after."""
        while True:
            left = [t for t in self.transfers if which is None or which(t)]
            if not left:
                return
            for t in left:
                if not self._blocked(t):
                    self._advance(t)
                    break
            else:
                self.deliver()
