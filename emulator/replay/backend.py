"""The interpreter's backend in replay mode: turns each call into an `Op` and waits until the scheduler has performed it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Compare, Lanes, Rmw, Scope, Sem, Signal
from ..memory_model import Where
from ..numerics import combine
from ..sites import chain as site
from . import ops
from .ops import Op
from .source import result_used
from .world import Fault, Refine

if TYPE_CHECKING:
    from .engine import Run
    from .workgroup import WorkGroup

U8 = np.dtype(np.uint8)
U64 = np.dtype(np.uint64)
_COMPARE = {
    Compare.EQ: np.equal, Compare.NE: np.not_equal, Compare.GT: np.greater, Compare.GE: np.greater_equal, Compare.LT: np.less,
    Compare.LE: np.less_equal,
}  # fmt: skip


class ReplayBackend:
    """See `emulator.backend.Backend`. Every method is called within the greenlet of the work-group that runs."""

    def __init__(self, run: "Run"):
        self.run = run
        self.nic = ReplayNic(self)

    @property
    def group(self) -> "WorkGroup":
        return self.run.current

    # -------------------------------------------------------------------------------------------------------- where
    def where(self, addresses: np.ndarray, itemsize: int, lanes: Lanes) -> list[tuple[Where, Any]]:
        """[(cells, positions among the lanes)], one for each buffer that the addresses lie in; mostly one."""
        rank, n = self.group.rank, addresses.size
        lo, last = int(addresses[0]), int(addresses[-1])
        if n == 1 or (
            last - lo == (n - 1) * itemsize and (n < 3 or not (addresses[1:] - addresses[:-1] != itemsize).any())
        ):
            buf, offset = self.run.world.find(rank, lo, lo + n * itemsize)
            cell = _cell(buf, offset, itemsize)
            return [
                (
                    Where(buf, offset // cell, (offset + n * itemsize) // cell, None, _key(offset, itemsize, lanes)),
                    slice(None),
                )
            ]
        lo, hi = int(addresses.min()), int(addresses.max()) + itemsize
        try:
            buf, offset = self.run.world.find(rank, lo, hi)
        except Fault:
            return self._several(addresses, itemsize, lanes)
        return [(_scattered(buf, offset, addresses - np.uint64(lo), itemsize, lanes), slice(None))]

    def _several(self, addresses: np.ndarray, itemsize: int, lanes: Lanes) -> list[tuple[Where, Any]]:
        """Lanes that lie in different buffers."""
        parts: dict[int, tuple[Any, int, list[int]]] = {}
        for position, address in enumerate(addresses.tolist()):
            buf, offset = self.run.world.find(self.group.rank, address, address + itemsize)
            parts.setdefault(id(buf), (buf, address - offset, []))[2].append(position)
        if len(parts) == 1:
            raise Fault("reaches outside its buffer")
        found = []
        for buf, base, positions in parts.values():
            at = np.array(positions)
            found.append((_scattered(buf, 0, addresses[at] - np.uint64(base), itemsize, lanes), at))
        return found

    def ask(self, op: Op) -> np.ndarray | None:
        return self.group.request(op)

    def each(
        self, addresses: np.ndarray, itemsize: int, lanes: Lanes, name: str, make: Callable[[Where, Any, Any], Op]
    ) -> np.ndarray | None:  # fmt: skip
        """Ask for the operation on every buffer that is touched; values in the order of the lanes."""
        at = site()
        try:
            parts = self.where(addresses, itemsize, lanes)
        except Fault as fault:
            self.ask(Op(ops.FAULT, at, name, values=str(fault)))
            raise
        if len(parts) == 1:
            return self.ask(make(parts[0][0], parts[0][1], at))
        results = [(positions, self.ask(make(w, positions, at))) for w, positions in parts]
        if results[0][1] is None:
            return None
        values = np.empty(addresses.size, results[0][1].dtype)
        for positions, part in results:
            values[positions] = part
        return values

    # ----------------------------------------------------------------------------------------------------- accesses
    def program_id(self, axis: int) -> int:
        return self.group.program_id[axis]

    def num_programs(self, axis: int) -> int:
        return self.group.grid[axis]

    def clock(self) -> int:
        return int(self.ask(Op(ops.PAUSE, site(), "clock", values=True))[0])

    def pause(self, nanoseconds: int) -> None:
        self.ask(Op(ops.PAUSE, site(), "pause"))

    def load(self, addresses: np.ndarray, dtype: np.dtype, sem: Sem, scope: Scope, lanes: Lanes) -> np.ndarray:
        scalar, lead = lanes.shape == (1,), lanes.shape == (1,) and lanes.alone
        name = "load" if sem is Sem.PLAIN else f"{sem.name.lower()} load"
        return self.each(
            addresses, dtype.itemsize, lanes, name,
            lambda w, _, at: Op(
                ops.LOAD, at, name, w, dtype, sem, scope, scalar=scalar, lead=lead, everyone=scalar and not lead and sem is not Sem.PLAIN
            ),
        )  # fmt: skip

    def store(self, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes) -> None:
        lead = lanes.shape == (1,)
        name = "store" if sem is Sem.PLAIN else f"{sem.name.lower()} store"
        self.each(
            addresses, values.itemsize, lanes, name,
            lambda w, part, at: Op(ops.STORE, at, name, w, values.dtype, sem, scope, np.array(values[part]), lead=lead),
        )  # fmt: skip

    def store_async(self, addresses: np.ndarray, values: np.ndarray, lanes: Lanes) -> None:
        self.each(
            addresses, values.itemsize, lanes, "asynchronous store",
            lambda w, part, at: Op(ops.ASYNC, at, "asynchronous store", w, values.dtype, values=np.array(values[part])),
        )  # fmt: skip

    def wait_async(self, reading_only: bool) -> None:
        if not reading_only:
            self.ask(Op(ops.ASYNC_WAIT, site(), "async wait"))

    def atomic_rmw(
        self, op: Rmw, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        scalar = lanes.shape == (1,)
        name = f"atomic_{op.value}"
        joins = scalar and not lanes.assembly and result_used()
        if op is Rmw.ADD and scalar and not lanes.assembly and not sem.releases and not values.any():
            # Triton compiles it to ld.relaxed / ld.acquire by thread 0 (../README.md, "Triton")
            make = lambda w, _, at: Op(
                ops.LOAD, at, name, w, values.dtype, sem, scope, lead=True, joins=joins, scalar=True
            )  # fmt: skip
        else:
            make = lambda w, part, at: Op(
                ops.RMW, at, name, w, values.dtype, sem, scope, change=lambda old: combine(op, old, values[part]), lead=scalar,
                joins=joins, scalar=scalar,
            )  # fmt: skip
        return self.each(addresses, values.itemsize, lanes, name, make)

    def atomic_cas(
        self, addresses: np.ndarray, expected: np.ndarray, desired: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        scalar = lanes.shape == (1,)
        joins = scalar and not lanes.assembly and result_used()
        bits = np.dtype(f"u{expected.itemsize}")

        def change(part: Any) -> Callable[[np.ndarray], np.ndarray | None]:
            want, new = expected[part].view(bits), desired[part].view(bits)

            def swapped(old: np.ndarray) -> np.ndarray | None:
                equal = old.view(bits) == want
                return np.where(equal, new, old.view(bits)).view(old.dtype) if equal.any() else None

            return swapped

        return self.each(
            addresses, expected.itemsize, lanes, "atomic_cas",
            lambda w, part, at: Op(
                ops.RMW, at, "atomic_cas", w, expected.dtype, sem, scope, change=change(part), lead=scalar, joins=joins, scalar=scalar
            ),
        )  # fmt: skip

    def barrier(self) -> None:
        self.ask(Op(ops.BARRIER, site(), "debug_barrier"))

    def fence(self, scope: Scope, sc: bool) -> None:
        self.ask(Op(ops.FENCE, site(), "fence.sc" if sc else "fence", scope=scope, values=True if sc else None))


class ReplayNic:
    """See `emulator.backend.Nic`: puts and signals are performed by the work-group's NIC, at an unknown time."""

    def __init__(self, backend: ReplayBackend):
        self._backend = backend

    def my_pe(self) -> int:
        return self._backend.group.rank

    def n_pes(self) -> int:
        return self._backend.run.world.world_size

    def _span(self, address: int, nbytes: int, peer: int | None, name: str) -> Where:
        """Cells of [address, + nbytes) in this rank's memory, or at the same place of a peer's heap."""
        world, wg = self._backend.run.world, self._backend.group
        try:
            buf, offset = world.find(wg.rank, address, address + nbytes)
            if peer is not None:
                buf = world.at_peer(buf, peer)
        except Fault as fault:
            self._backend.ask(Op(ops.FAULT, site(), name, values=str(fault)))
            raise
        cell = _cell(buf, offset, nbytes)
        return Where(buf, offset // cell, (offset + nbytes) // cell)

    def _flag(self, signal: Signal, peer: int, name: str) -> tuple[Where, Callable, np.dtype]:
        kind = Rmw.ADD if signal.add else Rmw.XCHG
        operand = np.array([signal.value & ((1 << 64) - 1)], np.uint64)
        return self._span(signal.address, 8, peer, name), lambda old: combine(kind, old, operand), U64

    def put(
        self, target: int, source: int, nbytes: int, peer: int, signal: Signal | None, blocking: bool, block: bool
    ) -> None:
        name = "put" if signal is None else "put with signal"
        flag = None if signal is None else self._flag(signal, peer, name)
        to, of = self._span(target, nbytes, peer, name), self._span(source, nbytes, None, name)
        self._backend.ask(Op(ops.PUT, site(), name, to, U8, values=flag, source=of, peer=peer, lead=blocking))

    def get(self, target: int, source: int, nbytes: int, peer: int, blocking: bool, block: bool) -> None:
        to, of = self._span(target, nbytes, None, "get"), self._span(source, nbytes, peer, "get")
        self._backend.ask(Op(ops.PUT, site(), "get", to, U8, source=of, peer=peer))
        if blocking:
            self.quiet()

    def signal(self, signal: Signal, peer: int) -> None:
        flag, change, dtype = self._flag(signal, peer, "signal")
        self._backend.ask(Op(ops.SIGNAL, site(), "signal", flag, dtype, change=change, peer=peer))

    def wait_until(self, address: int, dtype: np.dtype, compare: Compare, value: int) -> int:
        flag, met, at = self._span(address, dtype.itemsize, None, "wait_until"), _COMPARE[compare], site()
        while True:
            poll = Op(ops.LOAD, at, "wait_until", flag, dtype, Sem.ACQUIRE, Scope.SYS, scalar=True, everyone=True)
            seen = self._backend.ask(poll)[0]
            if met(seen, dtype.type(value)):
                return int(seen)

    def fence(self) -> None:
        self._backend.ask(Op(ops.ORDER, site(), "nvshmem_fence"))

    def quiet(self) -> None:
        self._backend.ask(Op(ops.QUIET, site(), "nvshmem_quiet"))

    def barrier_all(self) -> None:
        self._backend.ask(Op(ops.MEET, site(), "nvshmem_barrier_all"))


def _cell(buf: Any, offset: int, size: int) -> int:
    """The buffer's cell size; asks for smaller cells if the access does not consist of whole ones."""
    if offset % buf.cell or size % buf.cell:
        raise Refine(buf, int(np.gcd.reduce([buf.cell, offset, size])))
    return buf.cell


def _key(offset: int, itemsize: int, lanes: Lanes) -> tuple:
    """Equal for accesses of a work-group that give each lane the same address."""
    first = 0 if lanes.mask is None else int(np.argmax(lanes.mask.reshape(-1)))
    return (lanes.shape, offset - first * itemsize)


def _scattered(buf: Any, offset: int, relative: np.ndarray, itemsize: int, lanes: Lanes) -> Where:
    relative = relative.astype(np.int64) + offset
    cell = _cell(buf, int(np.gcd.reduce(relative % buf.cell)) if (relative % buf.cell).any() else 0, itemsize)
    idx = relative // cell
    if itemsize > cell:
        idx = (idx[:, None] + np.arange(itemsize // cell)).ravel()
    return Where(buf, int(idx.min()), int(idx.max()) + 1, idx, _key(int(relative[0]), itemsize, lanes))
