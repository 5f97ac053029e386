"""The fused operators for PyTorch: `torch.ops.fusedcc.*`, and these functions, which also take a process group.

Each operator has two faces. `op(...)` returns a fresh tensor that its caller owns: one copy out of symmetric memory; it is
the face for autograd and torch.compile. `op_out(..., out=...)` writes into a tensor from `empty_symmetric` without a copy;
what stands there is valid until the caller passes the tensor again.

As with torch's collectives, all ranks of the group make the same calls in the same order, on one stream or on streams that
are ordered; a group is given by name (the operators) or by name, process group or None for the default group (here). The
first call with new shapes agrees with the other ranks on the host; later ones do not wait for the host, so warm up before a
CUDA graph is captured. CPU tensors run in the emulator. A call that no kernel can do raises `ProblemError`, one line.
"""

import torch
from torch import Tensor

from ..errors import ProblemError
from . import gemv as _gemv  # registers the operator
from .memory import Group, empty_symmetric, group_name, set_heap_bytes

__all__ = ["ProblemError", "empty_symmetric", "gemv_all_reduce", "gemv_all_reduce_out", "set_heap_bytes"]


def gemv_all_reduce(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, group: Group = None
) -> Tensor:
    """`sum over ranks of input_r @ weight_r.T` (+ bias + residual): a row-parallel linear layer at decode.

    Args:
        input: [batch, k], this rank's slice of the features; batch 1 to 8; float32, bfloat16 or float16.
        weight: [m, k], contiguous, this rank's columns of the layer's weight.
        bias: [m] or None; residual: [batch, m] or None; the same on every rank, added once, in float32.
        group: process group, its name, or None for the default group; 1, 2, 4 or 8 ranks.

    Returns: [batch, m], the same bits on every rank. Its gradient must be the same on every rank too, as it is when each
    rank computes the same loss; then the gradients of input and weight need no communication (DTensor's Partial to
    Replicate is differentiated like that; `_c10d_functional.all_reduce` adds the ranks' gradients instead).
    """
    return torch.ops.fusedcc.gemv_all_reduce(input, weight, bias, residual, group_name(group))


def gemv_all_reduce_out(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    group: Group = None,
    *,
    out: Tensor,
) -> Tensor:
    """As `gemv_all_reduce`, into `out` [batch, m] from `empty_symmetric`, which is returned. Not differentiable."""
    torch.ops.fusedcc.gemv_all_reduce_out(input, weight, bias, residual, group_name(group), out=out)
    return out
