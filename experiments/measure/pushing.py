"""Plain push kernels over symmetric memory behind a compute kernel: what a careful user would write without fusing."""

import math
from collections.abc import Callable
from typing import Any

import torch

from .arms import Bench
from .device import push_all_reduce_kernel, push_all_to_all_kernel

BLOCK = 1024


def _flags(b: Bench, name: str, wgs: int) -> dict[str, torch.Tensor]:
    """Flags and epoch word of one push kernel with one grid, made once: epochs go on from case to case."""
    held = b.symm.state.setdefault("experiments.push", {})
    if (name, wgs) not in held:
        held[name, wgs] = {
            "ready": b.symm.empty(b.world * wgs, torch.int64, f"push.{name}.ready"),
            "entered": b.symm.empty(b.world, torch.int64, f"push.{name}.entered"),
            "word": b.symm.empty(1, torch.int64, f"push.{name}.epoch"),
        }
    return held[name, wgs]


def push_all_reduce(b: Bench, partial: torch.Tensor, result: torch.Tensor, wgs: int) -> Callable[[], None]:
    """What sums `partial` over the ranks into `result`, both [n] or [.., n] contiguous of one dtype."""
    flags = _flags(b, f"all_reduce.{partial.dtype}", wgs)
    n = partial.numel()
    args: dict[str, Any] = {
        "partial": partial, "out": result, "stage": b.symmetric("push.stage", (2 * b.world * n,), partial.dtype),
        "ready": flags["ready"], "word": flags["word"], "bases": b.symm.bases, "n": n, "rank": b.symm.rank,
        "WORLD": b.world, "BLOCK": BLOCK,
    }  # fmt: skip
    return lambda: b.symm.launch(push_all_reduce_kernel, wgs, args, num_warps=4, waits=True)


def push_all_to_all(
    b: Bench, sent: torch.Tensor, out: torch.Tensor, parts: list[tuple[int, int, int]], row: tuple[int, int], wgs: int
) -> Callable[[], None]:
    """What stores part d of `sent` into rank d's `out`.

    Args:
        parts: for each rank (first element of its part in `sent`, rows, first element in the rank's `out`).
        row: (elements of a row, elements from one row of `out` to the next).
    """
    flags = _flags(b, f"all_to_all.{sent.dtype}", wgs)
    device = b.symm.device
    align = math.gcd(16, *(value for start, _, column in parts for value in (start, column)))
    starts, rows, columns = torch.tensor(parts, dtype=torch.int64, device=device).T.contiguous()
    args: dict[str, Any] = {
        "sent": sent, "out": out, "starts": starts, "rows": rows, "columns": columns, "row_words": row[0], "pitch": row[1],
        "entered": flags["entered"], "ready": flags["ready"], "word": flags["word"], "bases": b.symm.bases,
        "rank": b.symm.rank, "WORLD": b.world, "BLOCK": 2 * BLOCK, "ALIGN": align,
    }  # fmt: skip
    return lambda: b.symm.launch(push_all_to_all_kernel, wgs, args, num_warps=8, waits=True)
