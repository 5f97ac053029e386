"""What operators keep on each rank between calls: flags, epoch words, stages and landing places."""

from dataclasses import dataclass

import torch

from .checks import MAX_GRID
from .symmetric import SymmetricMemory


@dataclass
class Workspace:
    """Flags and scratch of one All-to-All operator on one rank; only calls of that operator touch them.

    Attributes:
        ready: int64 [world_size, MAX_GRID], symmetric: epoch of the last call that a peer's work-group has stored all of.
        entered: int64 [world_size], symmetric: epoch of the last call that a peer has entered.
        word: int64 [1], this rank's epoch word (`shmem.epoch`).
        stage: scratch in this rank's own memory for the `staged` transport.
    """

    ready: torch.Tensor
    entered: torch.Tensor
    word: torch.Tensor
    stage: torch.Tensor

    def stage_of(self, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """At least `numel` elements of scratch."""
        if self.stage.numel() * self.stage.itemsize < numel * dtype.itemsize:
            self.stage = torch.empty(numel * dtype.itemsize, dtype=torch.uint8, device=self.stage.device)
        return self.stage[: numel * dtype.itemsize].view(dtype)


def workspace(symm: SymmetricMemory, operator: str) -> Workspace:
    """Collective on first use: the workspace of an operator on this rank."""
    if operator not in symm.state:
        symm.state[operator] = Workspace(
            ready=symm.empty((symm.world_size, MAX_GRID), torch.int64, f"{operator}.ready"),
            entered=symm.empty(symm.world_size, torch.int64, f"{operator}.entered"),
            word=symm.empty(1, torch.int64, f"{operator}.epoch"),
            stage=torch.empty(0, dtype=torch.uint8, device=symm.device),
        )
    return symm.state[operator]


@dataclass
class RdmaWorkspace:
    """The same for the rdma transport of all three operators, which has flags of its own.

    All but `word` and `slice_done` are symmetric.

    Attributes:
        slice_ready: int64 [world_size, max_slices]: epoch of the last call whose slice a peer has delivered.
        slice_done: int32 [world_size, max_slices], WG_Done: tiles of a slice for each destination that are parked.
        entered: int64 [2, world_size], by the epoch's parity: a peer's epoch (high half) and how many slices it sends.
        word: int64 [1], this rank's epoch word.
        stage, landing: bytes that slices are sent from and, where they cannot arrive in place, land in.
    """

    slice_ready: torch.Tensor
    slice_done: torch.Tensor
    entered: torch.Tensor
    word: torch.Tensor
    stage: torch.Tensor
    landing: torch.Tensor


def rdma_workspace(
    symm: SymmetricMemory, operator: str, max_slices: int, stage_bytes: int, landing_bytes: int
) -> RdmaWorkspace:
    """Collective when something has to grow, which is at the same call on every rank: sizes come from the problem.

    What is replaced is not given back, so that a put that is still under way has somewhere to go.
    """
    name = f"{operator}.rdma"
    space = symm.state.get(name)
    if space is None:
        space = symm.state[name] = RdmaWorkspace(
            slice_ready=torch.empty((symm.world_size, 0), dtype=torch.int64),
            slice_done=torch.empty(0),
            entered=symm.empty((2, symm.world_size), torch.int64, f"{name}.entered"),
            word=symm.empty(1, torch.int64, f"{name}.epoch"),
            stage=torch.empty(0),
            landing=torch.empty(0),
        )
    if space.slice_ready.shape[1] < max_slices:
        space.slice_ready = symm.empty((symm.world_size, max_slices), torch.int64, f"{name}.slice_ready")
        space.slice_done = torch.zeros((symm.world_size, max_slices), dtype=torch.int32, device=symm.device)
    for buffer, nbytes in (("stage", stage_bytes), ("landing", landing_bytes)):
        nbytes = max(16, -(-nbytes // 16) * 16)  # a whole number of elements of any dtype
        if getattr(space, buffer).numel() < nbytes:
            setattr(space, buffer, symm.empty(nbytes, torch.uint8, f"{name}.{buffer}"))
    return space
