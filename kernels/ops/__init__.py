"""The fused operators for PyTorch: `torch.ops.fusedcc.*`, and these functions, which also take a process group.

Each operator has two faces. `op(...)` returns a fresh tensor that its caller owns: one copy out of symmetric memory; it is
the face for autograd and torch.compile. `op_out(..., out=...)` writes into a tensor from `empty_symmetric` without a copy;
what stands there is valid until the caller passes the tensor again. `out` shares no memory with the operands, and nothing flows
back through it: as torch's own functions do, these refuse `out` together with operands that require a gradient.

As with torch's collectives, all ranks of the group make the same calls in the same order, on one stream or on streams that
are ordered; a group is given by name (the operators) or by name, process group or None for the default group (here). A call
that no kernel can do raises `ProblemError`, one line.

GPUs: the first call with new shapes, or with an `out` at a new place, agrees with the other ranks on the host; later ones do
not wait for the host, so warm up before a CUDA graph is captured. What lies on the device (indices, offsets, counts) is not
looked at. CPU tensors run in the emulator: there all ranks compare every call and the values are checked too, and what one
rank refuses raises on all of them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ProblemError
from . import embedding, gemm, gemv, memory  # noqa: F401 - importing them registers the operators
from .memory import Group, empty_symmetric, group_name, set_heap_bytes

__all__ = [
    "ProblemError", "embedding_all_to_all", "embedding_all_to_all_out", "empty_symmetric", "gemm_all_to_all", "gemm_all_to_all_out", "gemv_all_reduce",
    "gemv_all_reduce_out", "group_name", "set_heap_bytes",
]  # fmt: skip


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
    """As `gemv_all_reduce`, into `out` [batch, m] from `empty_symmetric`, which is returned; `residual` may be `out` itself."""
    memory.refuse_gradients("gemv_all_reduce", group, input=input, weight=weight, bias=bias, residual=residual, out=out)
    torch.ops.fusedcc.gemv_all_reduce_out(input, weight, bias, residual, group_name(group), out=out)
    return out


def embedding_all_to_all(
    weight: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    tables: Sequence[int],
    pooling_mode: str = "sum",
    group: Group = None,
) -> Tensor:
    """Pool this rank's tables for the bags of the global batch; end with all ranks' tables for this rank's bags.

    Args:
        weight: [rows of this rank's tables, dim], one table after the other, contiguous; float32, bfloat16 or float16.
        table_offsets: int64 [tables of this rank], first row of each.
        indices: int32 or int64 [n], rows within their table; what lies outside a table is not looked for on a GPU.
        offsets: as indices, [tables of this rank * batch + 1]: bag b of table t is
            indices[offsets[t * batch + b] : offsets[t * batch + b + 1]]; batch counts the bags of all ranks.
        per_sample_weights: float32 [n] or None.
        tables: how many tables each rank has, 1 or more, in rank order.
        pooling_mode: "sum" or "mean" (the sum divided by the number of indices; zeros for an empty bag).
        group: process group, its name, or None for the default group; 1, 2, 4 or 8 ranks.

    Returns: [bags of this rank, tables of all ranks, dim]: contiguous parts of the batch, the first `batch % world_size`
    ranks have one bag more. Gradients are those of the sum of all ranks' losses: they return to the owners by the reverse
    All-to-All, as a dense gradient of weight and one of per_sample_weights.
    """
    return torch.ops.fusedcc.embedding_all_to_all(
        weight, table_offsets, indices, offsets, per_sample_weights, list(tables), pooling_mode, group_name(group)
    )


def embedding_all_to_all_out(
    weight: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    tables: Sequence[int],
    pooling_mode: str = "sum",
    group: Group = None,
    out: Tensor,
) -> Tensor:
    """As `embedding_all_to_all`, into `out` [bags of the largest part, tables of all ranks, dim] from `empty_symmetric`.

    Returns: `out`; its first rows, as many as this rank has bags, are the result.
    """
    samples = per_sample_weights
    memory.refuse_gradients("embedding_all_to_all", group, weight=weight, per_sample_weights=samples, out=out)
    torch.ops.fusedcc.embedding_all_to_all_out(
        weight, table_offsets, indices, offsets, per_sample_weights, list(tables), pooling_mode, group_name(group), out
    )
    return out


def gemm_all_to_all(
    input: Tensor,
    weight: Tensor,
    counts: Tensor,
    dst_offsets: Tensor,
    scale: Tensor | None = None,
    *,
    rows_out: int,
    group: Group = None,
) -> Tensor:
    """This rank's experts (a grouped GEMM) on the rows dispatched to it; each row of the product to the rank that owns it.

    Args:
        input: [rows, k], sorted by (expert, destination); rows behind the last counted one are not used.
        weight: [experts of this rank, n, k], contiguous; float32, bfloat16 or float16.
        counts: int32 [experts of this rank, world_size], on the device: rows for each destination, zero allowed.
        dst_offsets: as counts: row of the destination's result where the block starts. Blocks must not overlap.
        scale: float32 [rows] or None: factor of each row's product (router weight).
        rows_out: rows of the result; like rows, n, k and the number of experts the same on every rank.
        group: process group, its name, or None for the default group; 1, 2, 4 or 8 ranks.

    Returns: [rows_out, n]; rows that no block covers are zero. The host never learns the counts. Gradients (input, weight,
    scale) are those of the sum of all ranks' losses.
    """
    return torch.ops.fusedcc.gemm_all_to_all(input, weight, counts, dst_offsets, scale, rows_out, group_name(group))


def gemm_all_to_all_out(
    input: Tensor,
    weight: Tensor,
    counts: Tensor,
    dst_offsets: Tensor,
    scale: Tensor | None = None,
    *,
    group: Group = None,
    out: Tensor,
) -> Tensor:
    """As `gemm_all_to_all`, into `out` [rows_out, n] from `empty_symmetric`, which is returned.

    Rows that no block covers are left alone.
    """
    memory.refuse_gradients("gemm_all_to_all", group, input=input, weight=weight, scale=scale, out=out)
    name = group_name(group)
    torch.ops.fusedcc.gemm_all_to_all_out(input, weight, counts, dst_offsets, scale, out.shape[0], name, out)
    return out
