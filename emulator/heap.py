"""Symmetric heaps: one shared-memory file a rank, mapped by every rank at addresses of its own.

The files have no names (memfd, or a temporary file unlinked at once), so nothing can be left behind in /dev/shm, and the size
of that file system does not matter. The first page of each heap is the rank's control page, the rest is for allocations.

Rank v maps heap o at `_FIRST + (v * ranks + o) * stride`: a pointer that belongs to another process's mapping is
recognised as such instead of hitting whatever lies there.
"""

import ctypes
import mmap
import os
import tempfile
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from .errors import BadAddress, EmulatorError, OutOfHeap

PAGE = 4096
ALIGNMENT = 128
_FIRST = 0x2000_0000_0000
_STRIDE = 1 << 21
_NOREPLACE = 0x100000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def _available() -> int:
    """Bytes of memory that can still be used on this machine, and by this control group if that is less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * PAGE
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as used:
            free = min(free, int(limit.read()) - int(used.read()))
    except (OSError, StopIteration, ValueError):
        pass
    return free


def file_bytes(heap_bytes: int) -> int:
    """Size of the file of a heap of which programs may use `heap_bytes`: the control page comes on top. Raises `EmulatorError`."""
    if not isinstance(heap_bytes, int) or heap_bytes < 1:
        raise EmulatorError(f"heap_bytes is {heap_bytes!r}; allowed: 1 or more")
    return PAGE + -(-heap_bytes // PAGE) * PAGE


def create(heap_bytes: int, ranks: int = 1) -> int:
    """File descriptor of a new zero-filled heap of which programs may use `heap_bytes`.

    Memory is taken page by page as it is touched. Raises `OutOfHeap` (one line with size and limit) if `ranks` such heaps
    cannot fit into memory, or if neither shared memory nor the temporary directory takes the file.
    """
    nbytes = file_bytes(heap_bytes)
    limit = _available()
    if nbytes * ranks > limit:
        raise OutOfHeap(
            f"{ranks} heaps of heap_bytes = {heap_bytes}; allowed: {limit // ranks} each, the memory available"
        )
    try:
        fd = os.memfd_create("symmetric heap", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        folder = tempfile.gettempdir()
        space = os.statvfs(folder)
        if space.f_bavail * space.f_frsize < nbytes * ranks:
            raise OutOfHeap(
                f"{ranks} heaps of heap_bytes = {heap_bytes}; allowed: {space.f_bavail * space.f_frsize // ranks} each, free in {folder}"
            ) from None
        fd, path = tempfile.mkstemp(prefix="symmetric-heap-")
        os.unlink(path)
    os.ftruncate(fd, nbytes)
    return fd


def _map(fd: int, nbytes: int, wanted: int) -> int:
    shared, readwrite = mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
    for hint, flags in ((wanted, shared | _NOREPLACE), (None, shared)):
        address = _libc.mmap(hint, nbytes, readwrite, flags, fd, 0)
        if address == wanted or (hint is None and address != ctypes.c_void_p(-1).value):
            return address
        if address != ctypes.c_void_p(-1).value:
            _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
    raise OutOfHeap(f"heap of {nbytes} bytes cannot be mapped: {os.strerror(ctypes.get_errno())}")


class Heaps:
    """All heaps as one process maps them.

    Args:
        fds: file descriptor of each rank's heap; may be closed afterwards.
        heap_bytes: as for `create`.
        view: a number that no other process mapping these heaps has (ranks use their rank).

    Attributes:
        bases: address of each rank's heap here.
        nbytes: size of each, control page included.
    """

    def __init__(self, fds: list[int], heap_bytes: int, view: int):
        nbytes = file_bytes(heap_bytes)
        self.nbytes, self.view, self.ranks = nbytes, view, len(fds)
        self._stride = -(-(nbytes + PAGE) // _STRIDE) * _STRIDE
        first = _FIRST + view * self.ranks * self._stride
        self.bases = [_map(fd, nbytes, first + owner * self._stride) for owner, fd in enumerate(fds)]
        self._regular = self.bases == [first + owner * self._stride for owner in range(self.ranks)]

    def owner(self, low: int, high: int) -> int:
        """The rank whose heap holds bytes [low, high); -1 for memory of this process. Raises `BadAddress`."""
        if self._regular:
            base = self.bases[0]
            if base <= low < base + self.ranks * self._stride:
                rank = (low - base) // self._stride
                if high > self.bases[rank] + self.nbytes:
                    raise self._past(rank, low, high)
                return rank
        else:
            for rank, base in enumerate(self.bases):
                if base <= low < base + self.nbytes:
                    if high > base + self.nbytes:
                        raise self._past(rank, low, high)
                    return rank
        if _FIRST <= low < _FIRST + 1024 * self.ranks * self._stride and self._regular:
            view, rank = divmod((low - _FIRST) // self._stride, self.ranks)
            raise BadAddress(
                f"address {low:#x} is the heap of rank {rank} as rank {view % self.ranks} maps it; "
                f"allowed on this rank: addresses that start from its own table of bases"
            )
        if low < PAGE:
            raise BadAddress(f"address {low:#x}: a null pointer plus an offset")
        return -1

    def _past(self, rank: int, low: int, high: int) -> BadAddress:
        base = self.bases[rank]
        return BadAddress(f"bytes [{low - base}, {high - base}) of rank {rank}'s heap; allowed: up to {self.nbytes}")

    def bytes_of(self, rank: int) -> ctypes.Array:
        """Rank `rank`'s heap as a ctypes array of bytes, for `torch.frombuffer` and the like."""
        return (ctypes.c_uint8 * self.nbytes).from_address(self.bases[rank])

    def control(self, rank: int) -> "Control":
        """Rank `rank`'s control page."""
        return Control.from_address(self.bases[rank])


class Control(ctypes.Structure):
    """First page of a heap: what other processes can see of a rank.

    Attributes:
        progress: counts operations that changed memory, and calls of the host; unchanged for long means stuck.
        idle: rounds of looking in vain, while every work-group waits and nothing is left to deliver; 0 otherwise.
        stop: set by others: raise `Hang` with a description of what is waited for.
        barrier: arrivals at NVSHMEM's barrier (rank 0's counts).
    """

    _fields_ = (
        ("progress", ctypes.c_uint64),
        ("idle", ctypes.c_uint64),
        ("stop", ctypes.c_uint64),
        ("barrier", ctypes.c_uint64),
    )


class Allocation(NamedTuple):
    """One symmetric buffer: bytes [offset, offset + nbytes) of every rank's heap, elements of `itemsize` bytes."""

    offset: int
    nbytes: int
    itemsize: int
    name: str


@dataclass
class Allocator:
    """Offsets in the heap, handed out in order: the same calls give the same offsets on every rank."""

    nbytes: int
    top: int = PAGE

    def __post_init__(self) -> None:
        self.allocations: list[Allocation] = []

    def take(self, shape: tuple[int, ...], itemsize: int, name: str) -> Allocation:
        """The next allocation, aligned to 128 bytes. Raises `OutOfHeap`."""
        nbytes = prod(shape) * itemsize
        offset = -(-self.top // ALIGNMENT) * ALIGNMENT
        if offset + nbytes > self.nbytes:
            raise OutOfHeap(
                f"symmetric buffer {name or len(self.allocations)} of {nbytes} bytes; allowed: {max(0, self.nbytes - offset)}, "
                f"what is left of {self.nbytes - PAGE} heap bytes"
            )
        self.top = offset + nbytes
        found = Allocation(offset, nbytes, itemsize, name or f"buffer{len(self.allocations)}")
        self.allocations.append(found)
        return found

    def describe(self, offset: int) -> str:
        """`name[index]` of a byte offset."""
        for a in self.allocations:
            if a.offset <= offset < a.offset + a.nbytes:
                return f"{a.name}[{(offset - a.offset) // a.itemsize}]"
        return f"heap+{offset:#x}"
