"""Memory of all ranks in one process: every heap mapped once per rank that looks at it, at a different address."""

import bisect
import mmap
import os
from math import prod

import numpy as np
import torch

from ..errors import EmulatorError
from ..memory_model import Buffer

ALIGNMENT = 128


class Fault(Exception):
    """An address that this rank may not touch; the text says what it is."""


class Refine(BaseException):
    """An access is narrower than the cells of a buffer: the run starts again with smaller ones."""

    def __init__(self, buf: Buffer, cell: int):
        self.buf, self.cell = buf, cell


class World:
    """Heaps and buffers; made once and used for many runs, so that addresses are equal from run to run.

    Args:
        world_size: ranks.
        heap_bytes: size of each rank's symmetric heap.
    """

    def __init__(self, world_size: int, heap_bytes: int):
        self.world_size, self.heap_bytes = world_size, heap_bytes
        self.maps: dict[tuple[int, int], torch.Tensor] = {}
        for owner in range(world_size):
            fd = os.memfd_create(f"heap of rank {owner}")
            try:
                os.ftruncate(fd, heap_bytes)
                for viewer in range(world_size):
                    self.maps[viewer, owner] = torch.frombuffer(mmap.mmap(fd, heap_bytes), dtype=torch.uint8)
            finally:
                os.close(fd)
        self.memory = [self.maps[r, r].numpy() for r in range(world_size)]
        self._segments = sorted((t.data_ptr(), t.data_ptr() + heap_bytes, v, o) for (v, o), t in self.maps.items())
        self._starts = [s[0] for s in self._segments]
        self._allocations: list[
            tuple[int, int, torch.dtype, list[Buffer]]
        ] = []  # offset, bytes, dtype, one buffer a rank
        self._offsets: list[int] = []
        self._private: list[dict[int, Buffer]] = []  # per rank, by order of registration
        self._high = 0
        self._cells: dict[tuple[str, int], int] = {}  # (buffer, its size) -> bytes per cell, where not the element size
        self.begin()

    def begin(self) -> None:
        """Start a run: heaps zero and empty. Buffers of the last run come back for equal allocations."""
        for memory in self.memory:
            memory[: self._high] = 0
        self._taken = [0] * self.world_size
        self._top = 0
        self._live = 0
        self._tensors: list[list[tuple[int, int, Buffer, torch.Tensor]]] = [[] for _ in range(self.world_size)]
        self._private = self._private or [{} for _ in range(self.world_size)]

    def bases(self, rank: int) -> torch.Tensor:
        """int64 [world_size]: the heaps' addresses as `rank` maps them."""
        return torch.tensor([self.maps[rank, o].data_ptr() for o in range(self.world_size)], dtype=torch.int64)

    def empty(
        self, rank: int, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str, poison: bool
    ) -> torch.Tensor:
        """The next symmetric allocation of `rank`; every rank's n-th must be alike."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes, k = prod(sizes) * dtype.itemsize, self._taken[rank]
        self._taken[rank] += 1
        if k == self._live:
            offset = -(-self._top // ALIGNMENT) * ALIGNMENT
            if offset + nbytes > self.heap_bytes:
                raise EmulatorError(
                    f"symmetric heap is {self.heap_bytes} bytes: {nbytes} more for {sizes} {dtype} do not fit after {self._top}; "
                    "allowed: a larger heap_bytes"
                )
            have = self._allocations[k] if k < len(self._allocations) else None
            if have is None or have[:3] != (offset, nbytes, dtype):
                del self._allocations[k:], self._offsets[k:]
                label = name or f"symmetric {k}"
                parts = [m[offset : offset + max(nbytes, dtype.itemsize)] for m in self.memory]
                cell = self._cells.get((label, nbytes), dtype.itemsize)
                made = [Buffer(label, r, part, cell, poison=poison, dtype=_name(dtype)) for r, part in enumerate(parts)]
                self._allocations.append((offset, nbytes, dtype, made))
                self._offsets.append(offset)
            for buf in self._allocations[k][3]:
                buf.reset()
                buf.poison = poison
            self._live += 1
            self._top = offset + nbytes
            self._high = max(self._high, self._top)
        offset, have, kind, _ = self._allocations[k]
        if (have, kind) != (nbytes, dtype):
            raise EmulatorError(
                f"symmetric allocation {k} of rank {rank} is {sizes} {dtype}; allowed: {have} bytes of {kind}, as on the other ranks"
            )
        return self.maps[rank, rank][offset : offset + nbytes].view(dtype).view(sizes)

    def register(self, rank: int, tensor: torch.Tensor, name: str) -> Buffer | None:
        """Make private memory known, so that a kernel may touch it; None if it lies in a heap (which then takes the name)."""
        storage = tensor.untyped_storage()
        lo, nbytes = storage.data_ptr(), storage.nbytes()
        if nbytes == 0:
            return None
        k = bisect.bisect_right(self._starts, lo) - 1
        if k >= 0 and lo < self._segments[k][1]:
            offset = tensor.data_ptr() - self._segments[k][0]
            at = bisect.bisect_right(self._offsets, offset, hi=self._live) - 1
            if at >= 0 and self._allocations[at][3][0].name.startswith("symmetric "):
                for buf in self._allocations[at][3]:
                    buf.name = name
            return None
        for a, b, buf, _ in self._tensors[rank]:
            if a <= lo < b:
                return buf
        order = len(self._tensors[rank])
        memory = np.frombuffer(memoryview(storage_bytes(tensor)), np.uint8)
        buf = self._private[rank].get(order)
        cell = self._cells.get((name, nbytes), tensor.dtype.itemsize)
        if buf is None or (len(buf.mem), buf.cell, buf.name) != (nbytes, cell, name):
            buf = self._private[rank][order] = Buffer(name, rank, memory, cell, shared=False, dtype=_name(tensor.dtype))
        else:
            buf.move(memory)
        # Keeping the tensor keeps its address from being used again within the run.
        bisect.insort(self._tensors[rank], (lo, lo + nbytes, buf, tensor), key=lambda e: e[0])
        return buf

    def find(self, rank: int, lo: int, hi: int) -> tuple[Buffer, int]:
        """(buffer, byte offset in it) of the bytes [lo, hi) as `rank` addresses them. Raises `Fault`."""
        k = bisect.bisect_right(self._starts, lo) - 1
        if k >= 0 and lo < self._segments[k][1]:
            start, _, viewer, owner = self._segments[k]
            if viewer != rank:
                raise Fault(
                    f"uses an address of rank {owner}'s heap that is valid on rank {viewer} only (byte {lo - start} of the heap)"
                )
            return self._in_heap(owner, lo - start, hi - start)
        private = self._tensors[rank]
        at = bisect.bisect_right(private, lo, key=lambda e: e[0]) - 1
        if at >= 0 and lo < private[at][1]:
            start, end, buf, _ = private[at]
            if hi > end:
                raise Fault(f"runs {hi - end} bytes past the end of `{buf.name}` ({end - start} bytes)")
            return buf, lo - start
        raise Fault(f"address {lo:#x} is in no buffer" + self._near(rank, lo))

    def find_shared(self, rank: int, lo: int) -> tuple[Buffer, int]:
        """(buffer, byte offset in it) of a byte of any heap that `rank` has mapped. Raises `Fault` for other memory."""
        k = bisect.bisect_right(self._starts, lo) - 1
        if k >= 0 and lo < self._segments[k][1]:
            start, _, _, owner = self._segments[k]
            return self._in_heap(owner, lo - start, lo - start + 1)
        raise Fault("not symmetric memory")

    def locate(self, rank: int, address: int) -> tuple[int, int]:
        """(identity of the buffer, its address) around an address, the same from run to run; (0, 0) if there is none."""
        try:
            buf, offset = self.find(rank, address, address + 1)
        except Fault:
            return 0, 0
        return id(buf), address - offset

    def _in_heap(self, owner: int, lo: int, hi: int) -> tuple[Buffer, int]:
        at = bisect.bisect_right(self._offsets, lo, hi=self._live) - 1
        if at >= 0:
            offset, nbytes, _, bufs = self._allocations[at]
            if hi <= offset + nbytes:
                return bufs[owner], lo - offset
            past = hi - offset - nbytes
            raise Fault(
                f"runs {past} bytes past the end of `{bufs[owner].name}` ({nbytes} bytes) in rank {owner}'s heap"
            )
        raise Fault(f"byte {lo} of rank {owner}'s heap is in no symmetric buffer")

    def _near(self, rank: int, lo: int) -> str:
        for other, tensors in enumerate(self._tensors):
            for start, end, buf, _ in tensors:
                if start <= lo < end and other != rank:
                    return f": it is `{buf.name}` of rank {other}, private memory of another rank"
                if 0 <= lo - end < 4096 or 0 < start - lo <= 4096:
                    where = f"{lo - end} bytes past the end of" if lo >= end else f"{start - lo} bytes before"
                    return f": {where} `{buf.name}` ({end - start} bytes)"
        return ""

    def refine(self, request: Refine) -> None:
        """Smaller cells for that buffer, from the next run on. Everything recorded with the old ones is void."""
        self._cells[request.buf.name, len(request.buf.mem)] = request.cell
        self._allocations, self._offsets, self._private = [], [], []

    def at_peer(self, buf: Buffer, peer: int) -> Buffer:
        """The buffer at the same place of a peer's heap. Raises `Fault` for private memory."""
        for _, _, _, bufs in self._allocations[: self._live]:
            if bufs[buf.rank] is buf:
                return bufs[peer]
        raise Fault(f"`{buf.name}` is private memory of rank {buf.rank}; puts take symmetric addresses")

    def private_of(self, rank: int) -> list[Buffer]:
        return [entry[2] for entry in self._tensors[rank]]


def storage_bytes(tensor: torch.Tensor) -> np.ndarray:
    """uint8 view of the tensor's whole storage."""
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(tensor.detach().untyped_storage(), 0, (tensor.untyped_storage().nbytes(),), (1,))
    return flat.numpy()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
