"""The plan of an operator on one rank: its logical work-groups in execution order. Plain numpy, no Triton.

One source of truth: the kernels run it (by the arithmetic of `kernels/schedule.py`; a test proves that they visit exactly
this), the timing model replays it, the timeline figure labels by it.
"""

from dataclasses import dataclass

import numpy as np

from .errors import require

# Whom a rank serves when. remote_first: all its work-groups rank + 1, then rank + 2, ..., itself last. interleaved: itself
# last, too, but each work-group starts with another remote rank, so that the links to all of them are busy all the time.
# oblivious: rank 0, then rank 1, ..., the same on every rank.
ORDERS = ("remote_first", "interleaved", "oblivious")


@dataclass(frozen=True)
class Plan:
    """Logical work-groups of one rank, one array element each, in execution order (all first steps, then all second ones).

    Attributes:
        grid: physical work-groups of the persistent launch.
        wg: int32, the physical work-group that runs it.
        order: int32, the logical work-group's number.
        dest: int32, rank that the result goes to (the rank itself: a local store).
        slice: int32, group of logical work-groups that one RDMA put carries, numbered within the rank.
        bytes_read: int64, bytes read from the rank's own memory.
        bytes_sent: int64, result bytes stored at `dest` (local stores included; remote where dest != rank).
        flops: int64, floating-point operations.
    """

    grid: int
    wg: np.ndarray
    order: np.ndarray
    dest: np.ndarray
    slice: np.ndarray
    bytes_read: np.ndarray
    bytes_sent: np.ndarray
    flops: np.ndarray

    def __len__(self) -> int:
        return len(self.order)


def first_destination(order: str, rank: int, world_size: int) -> int:
    """The destination that a rank's first turn is for, but for `interleaved`, where each work-group has its own."""
    require(order in ORDERS, "order", order, ", ".join(ORDERS))
    return 0 if order == "oblivious" else (rank + 1) % world_size


def turns(order: str, rank: int, world_size: int, wg: np.ndarray, dest: np.ndarray) -> np.ndarray:
    """When work-group wg[i] serves dest[i]: at its 0th to (world_size - 1)-th turn. The twin of `schedule.destination`."""
    turn = (dest - first_destination(order, rank, world_size)) % world_size
    if order == "interleaved" and world_size > 2:
        turn = np.where(dest == rank, turn, (turn - wg) % (world_size - 1))
    return turn


def execution_order(
    order: str, rank: int, world_size: int, grid: int, dest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(wg, logical) in execution order; the numpy twin of `kernels/schedule.py`. `dest` of logical work-groups, ascending."""
    logical = np.arange(len(dest), dtype=np.int32)
    wg = logical % grid
    # Of one work-group: by turn, then by number.
    by_wg = np.argsort(wg.astype(np.int64) * world_size + turns(order, rank, world_size, wg, dest), kind="stable")
    step = np.empty_like(logical)
    step[by_wg] = logical - np.searchsorted(wg[by_wg], np.arange(grid))[wg[by_wg]]
    by_step = np.argsort(step.astype(np.int64) * grid + wg)
    return wg[by_step], logical[by_step]


def make(
    grid: int,
    order: str,
    rank: int,
    world_size: int,
    dest: np.ndarray,
    bytes_read: np.ndarray,
    bytes_sent: np.ndarray,
    flops: np.ndarray,
    slice_of: np.ndarray | None = None,
) -> Plan:
    """The plan of `rank` from one array element per logical work-group, indexed by its number; `dest` must ascend."""
    wg, number = execution_order(order, rank, world_size, grid, dest)
    slices = np.arange(len(dest)) if slice_of is None else slice_of
    return Plan(
        grid=grid,
        wg=wg,
        order=number,
        dest=dest[number].astype(np.int32),
        slice=slices[number].astype(np.int32),
        bytes_read=bytes_read[number].astype(np.int64),
        bytes_sent=bytes_sent[number].astype(np.int64),
        flops=flops[number].astype(np.int64),
    )
