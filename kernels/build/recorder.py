"""A symmetric memory that launches nothing: it keeps what an operator would have launched, so that the build compiles that.

Operators run on it with meta tensors, so that the constants, specialisations and tile sizes built ahead of time are the ones
the operators choose themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .targets import Target


@dataclass(frozen=True)
class Launch:
    """One recorded launch: the Triton function, its arguments by name and its options."""

    kernel: Any
    grid: int
    args: dict[str, Any]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class GpuView:
    """The part of a `SymmetricMemory` that a choice of configuration depends on."""

    device_name: str
    max_resident: Callable[[int], int]
    state: dict[Any, Any]

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)


class RecordingMemory:
    """The `SymmetricMemory` protocol for one rank of `world_size` on `target`, with tensors on the meta device."""

    def __init__(self, target: Target, world_size: int, rank: int = 0):
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device("meta")
        self.bases = torch.empty(world_size, dtype=torch.int64, device=self.device)
        self.state: dict[Any, Any] = {}
        self.launches: list[Launch] = []
        self.target = target

    def as_gpu(self) -> "GpuView":
        """What operators ask to choose a configuration: this target's GPU, as if it were there."""
        return GpuView(self.target.machine, self.max_resident, self.state)

    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def barrier(self) -> None:
        """Nobody to wait for."""

    def exchange(self, value: Any) -> list[Any]:
        return [value] * self.world_size

    def max_resident(self, num_warps: int) -> int:
        return max(1, self.target.units * (self.target.warps_per_unit // num_warps))

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
        self.launches.append(Launch(kernel, grid, dict(args), num_warps, num_stages))
