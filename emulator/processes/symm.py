"""One rank's symmetric memory in the process that interprets its kernels: what programs get as `symm`."""

from collections.abc import Callable
from typing import Any

import torch

from .. import interpreter
from ..errors import EmulatorError, TooManyWorkGroups
from ..heap import Allocation, Allocator, Heaps
from .memory import Memory
from .options import Counts
from .scheduler import Scheduler

Exchange = Callable[[Any], list[Any]]


class Symm:
    """Symmetric memory of one rank. Methods marked collective are called by all ranks alike, in the same order.

    Attributes:
        rank, world_size, device: as usual; the device is the CPU.
        bases: int64 [world_size], address of each rank's heap as this process maps it.
        state: scratch of operators, kept as long as this object.
        counts: what this rank has done so far.
    """

    def __init__(self, heaps: Heaps, memory: Memory, resident: int, exchange: Exchange):
        self.rank, self.world_size = memory.rank, memory.world_size
        self.device = torch.device("cpu")
        self.bases = torch.tensor(heaps.bases, dtype=torch.int64)
        self.state: dict[Any, Any] = {}
        self._heaps, self._memory, self._resident, self._exchange = heaps, memory, resident, exchange
        self._bytes = torch.frombuffer(heaps.bytes_of(self.rank), dtype=torch.uint8)
        self.allocator = Allocator(heaps.nbytes)
        self._scheduler = Scheduler(memory, resident, self.allocator)

    @property
    def counts(self) -> Counts:
        return self._memory.counts

    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Collective: a zero-filled tensor at the same offset of every rank's heap, 128-byte aligned.

        `name` is what reports call it. Raises `OutOfHeap`.
        """
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.view(self.allocator.take(sizes, dtype.itemsize, name), sizes, dtype)

    def view(self, a: Allocation, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The tensor of an allocation in this rank's heap."""
        return self._bytes[a.offset : a.offset + a.nbytes].view(dtype).view(shape)

    def heap(self) -> torch.Tensor:
        """uint8 [heap_bytes]: all of this rank's heap."""
        return self._bytes

    def barrier(self) -> None:
        """Collective host barrier. Completes this rank's transfers first, as NVSHMEM's does."""
        self.exchange(None)

    def exchange(self, value: Any) -> list[Any]:
        """Collective host all-gather of a picklable: every rank's value, by rank."""
        self._memory.nic.complete()
        self._memory.changed()
        return self._exchange(value)

    def max_resident(self, num_warps: int) -> int:
        """Physical work-groups at a time; an option of the run, whatever `num_warps`."""
        return self._resident

    def launch(
        self, kernel: Any, grid: int | tuple[int, ...], args: dict[str, Any], *, num_warps: int = 4, num_stages: int = 1,
        waits: bool = True,
    ) -> None:  # fmt: skip
        """Run a kernel to its end.

        Args:
            kernel: `@triton.jit` function.
            grid: programs, in one to three dimensions.
            args: by name, constexprs included.
            num_warps, num_stages: of no consequence here.
            waits: programs may wait for each other or for other ranks, so that all must be resident at once; if False they
                run in chunks.

        Raises `TooManyWorkGroups`, and `ProgramFailed` or another `EmulatorError` naming work-group and source line.
        """
        sizes = (grid,) if isinstance(grid, int) else tuple(grid)
        if not 1 <= len(sizes) <= 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
            raise EmulatorError(f"grid is {grid!r}; allowed: one to three positive integers")
        sizes += (1,) * (3 - len(sizes))
        name = getattr(kernel, "__name__", str(kernel))
        if waits and sizes[0] * sizes[1] * sizes[2] > self._resident:
            raise TooManyWorkGroups(
                f"grid of {name} is {sizes[0] * sizes[1] * sizes[2]}; allowed: up to {self._resident}, the resident work-groups, "
                f"or waits=False for a kernel whose work-groups wait for nobody"
            )
        with interpreter.active(self._memory):
            self._scheduler.run(interpreter.prepare(kernel, args), name, sizes)

    def finish(self) -> None:
        """End of the program: its transfers complete."""
        self._memory.nic.complete()
