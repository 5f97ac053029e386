"""Symmetric memory: the same offset in every rank's heap, and who provides it.

Operators take one `SymmetricMemory` object per rank and never ask where it comes from:

* GPUs: `kernels.gpu_memory` (torch symmetric memory, NVSHMEM, or several virtual ranks on one device);
* CPU: the emulator, loaded by name on first use, since neither package imports the other.
"""

import importlib
from collections.abc import Callable
from math import prod
from typing import Any, Protocol

import torch

from .errors import ProblemError, require

ALIGNMENT = 128


class SymmetricMemory(Protocol):
    """What an operator needs of a rank. One object per rank; every method marked collective is called by all ranks alike.

    Attributes:
        rank, world_size: this rank and how many there are.
        device: where its heap and its operands live.
        bases: int64 [world_size], base address of each rank's heap as this rank maps it, on `device`.
        state: where operators keep their per-rank workspaces between calls.
    """

    rank: int
    world_size: int
    device: torch.device
    bases: torch.Tensor
    state: dict[Any, Any]

    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Collective: a zero-filled tensor at the same offset on every rank."""

    def barrier(self) -> None:
        """Collective host barrier, for set-up only."""

    def exchange(self, value: Any) -> list[Any]:
        """Collective host all-gather of a small picklable, for set-up and agreement checks only."""

    def max_resident(self, num_warps: int) -> int:
        """Upper bound of physical work-groups that can be resident at once (kernels may allow fewer: launch checks)."""

    def launch(
        self,
        kernel: Any,
        grid: int,
        args: dict[str, Any],
        *,
        num_warps: int = 4,
        num_stages: int = 1,
        waits: bool = True,
    ) -> None:
        """Launch `grid` programs on this rank's stream; the host does not wait.

        `waits`: programs wait for each other or for other ranks, so all must be resident at once: a larger grid is refused.
        """


class BumpHeap:
    """Offsets within a heap: collective allocation in the same order on every rank gives the same offsets."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.top = 0

    def take(self, shape: tuple[int, ...] | int, dtype: torch.dtype) -> tuple[int, int]:
        """(offset, bytes) of the next allocation; one line naming the sizes if it does not fit."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = prod(sizes) * dtype.itemsize
        offset = -(-self.top // ALIGNMENT) * ALIGNMENT
        if offset + nbytes > self.nbytes:
            raise ProblemError(
                f"symmetric heap of {self.nbytes} bytes is full: {nbytes} more bytes for {sizes} {dtype} do not fit "
                f"after {self.top}; allowed: a larger heap_bytes"
            )
        self.top = offset + nbytes
        return offset, nbytes


def agree(symm: SymmetricMemory, what: str, value: Any) -> None:
    """Collective, once per distinct value: every rank must call with the same problem, else one line names who differs."""
    seen = symm.state.setdefault("agreed", set())
    if (what, value) in seen:
        return
    for rank, other in enumerate(symm.exchange(value)):
        require(
            other == value, f"{what} of rank {rank}", other, f"the same on every rank; rank {symm.rank} has {value!r}"
        )
    seen.add((what, value))


def require_symmetric(symm: SymmetricMemory, name: str, tensor: torch.Tensor) -> None:
    """A tensor that peers store into must lie in this rank's heap (providers that keep the heap as `heap` are asked)."""
    heap = getattr(symm, "heap", None)
    heap = heap() if callable(heap) else heap
    if isinstance(heap, torch.Tensor):
        low, high = heap.data_ptr(), heap.data_ptr() + heap.numel() * heap.itemsize
        inside = low <= tensor.data_ptr() and tensor.data_ptr() + tensor.numel() * tensor.itemsize <= high
        require(inside, f"memory of {name}", "outside the symmetric heap", "a tensor from symm.empty")


_PROVIDERS: dict[str, Callable[..., SymmetricMemory]] = {}


def register_provider(device_type: str, from_group: Callable[..., SymmetricMemory]) -> None:
    """Make `from_group(group_name, heap_bytes)` the source of symmetric memory for tensors of `device_type`."""
    _PROVIDERS[device_type] = from_group


def provider(device_type: str) -> Callable[..., SymmetricMemory]:
    """The registered provider; the two that this project has register themselves when first asked for."""
    if device_type not in _PROVIDERS:
        root = __package__.rpartition(".")[0]
        homes = {"cuda": f"{__package__}.gpu_memory", "cpu": f"{root}.emulator.remote" if root else "emulator.remote"}
        require(device_type in homes, "device", device_type, "cpu or cuda")
        found = device_type != "cuda" or torch.cuda.is_available()
        require(found, "device", device_type, "cpu, since torch finds no GPU")
        module = importlib.import_module(homes[device_type])
        register_provider(device_type, module.from_group)
    return _PROVIDERS[device_type]
