"""The plan of an operator on one rank: its logical work-groups in execution order. Plain numpy, no Triton.

One source of truth: the kernels run it (by the arithmetic of `kernels/schedule.py`; a test proves that they visit exactly
this), the timing model replays it, the timeline figure labels by it.
"""

from dataclasses import dataclass

import numpy as np

from .errors import require

ORDERS = ("remote_first", "oblivious")


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


def first_logical(order: str, rank: int, starts: np.ndarray) -> int:
    """Where a rank starts: `starts[p]` is the first logical work-group for destination p (len world_size)."""
    require(order in ORDERS, "order", order, ", ".join(ORDERS))
    return int(starts[(rank + 1) % len(starts)]) if order == "remote_first" else 0


def execution_order(n_logical: int, grid: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """(wg, logical) in execution order; the numpy twin of `kernels/schedule.py`."""
    logical = np.arange(n_logical, dtype=np.int32)
    wg = logical % grid
    steps = (n_logical - wg + grid - 1) // grid
    start = np.maximum(0, (first - wg + grid - 1) // grid)
    step = (logical // grid - np.where(start < steps, start, 0)) % steps
    by_step = np.lexsort((wg, step))
    return wg[by_step], logical[by_step]


def make(
    grid: int,
    first: int,
    dest: np.ndarray,
    bytes_read: np.ndarray,
    bytes_sent: np.ndarray,
    flops: np.ndarray,
    slice_of: np.ndarray | None = None,
) -> Plan:
    """Build a plan from per-logical-work-group arrays, indexed by the logical work-group's number."""
    wg, order = execution_order(len(dest), grid, first)
    slices = np.arange(len(dest)) if slice_of is None else slice_of
    return Plan(
        grid=grid,
        wg=wg,
        order=order,
        dest=dest[order].astype(np.int32),
        slice=slices[order].astype(np.int32),
        bytes_read=bytes_read[order].astype(np.int64),
        bytes_sent=bytes_sent[order].astype(np.int64),
        flops=flops[order].astype(np.int64),
    )
