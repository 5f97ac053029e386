"""`torch.ops.fusedcc.gemm_all_to_all` and `gemm_all_to_all_out`."""

from typing import Any

import torch
from torch import Tensor

from .. import gemm_all_to_all
from ..checks import check_devices
from ..differentiable import all_gather
from ..errors import require
from . import memory

_OPERATOR = "gemm_all_to_all"
_OPERANDS = (
    "Tensor input, Tensor weight, Tensor counts, Tensor dst_offsets, Tensor? scale, SymInt rows_out, str group_name"
)


def _problem(
    input: Tensor, weight: Tensor, counts: Tensor, dst_offsets: Tensor, scale: Tensor | None, rows_out: int,
    group_name: str, out: Tensor | None = None,
) -> gemm_all_to_all.Problem:  # fmt: skip
    """What these operands ask for, checked; all but their contents while tracing too, on fake tensors."""
    check_devices(weight.device, input=input, counts=counts, dst_offsets=dst_offsets, scale=scale)
    require(weight.dim() == 3, "shape of weight", tuple(weight.shape), "[experts, n, k]")
    experts, n, k = weight.shape
    require(input.dim() == 2 and input.shape[1] == k, "shape of input", tuple(input.shape), f"[rows, {k}]")
    require(input.dtype == weight.dtype, "dtype of input", str(input.dtype), str(weight.dtype))
    problem = gemm_all_to_all.Problem(
        rows=input.shape[0],
        rows_out=rows_out,
        n=n,
        k=k,
        experts=experts,
        dtype=weight.dtype,
        world_size=memory.process_group(group_name).size(),
        scaled=scale is not None,
    )
    # The kernel's own checks, of contiguous tensors: rows and counts are made contiguous, the weights never.
    input, counts, dst_offsets, scale = (
        t if t is None else t.contiguous() for t in (input, counts, dst_offsets, scale)
    )
    operands = gemm_all_to_all.Experts(input, weight, counts, dst_offsets, scale)
    operands.check(problem)
    if memory.readable(weight):
        operands.check_contents(problem)
    if out is not None:
        shape = problem.rows_out, problem.n
        rest = {"counts": counts, "dst_offsets": dst_offsets, "scale": scale}
        memory.check_out(out, shape, weight.dtype, weight.device, input=input, weight=weight, **rest)
    return problem


@torch.library.custom_op(f"fusedcc::{_OPERATOR}", mutates_args=(), schema=f"({_OPERANDS}) -> Tensor")
def gemm_owned(
    input: Tensor, weight: Tensor, counts: Tensor, dst_offsets: Tensor, scale: Tensor | None, rows_out: int, group_name: str
) -> Tensor:  # fmt: skip
    operands = input, weight, counts, dst_offsets, scale
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(*operands, rows_out, group_name))
    # Cleared on this rank's stream before its launch, and peers store only after they heard of that launch.
    return memory.run_owned(
        symm, _OPERATOR, problem, (problem.rows_out, problem.n), _operands(*operands), clear=True
    ).clone()  # fmt: skip


@gemm_owned.register_fake
def _(
    input: Tensor, weight: Tensor, counts: Tensor, dst_offsets: Tensor, scale: Tensor | None, rows_out: int, group_name: str
) -> Tensor:  # fmt: skip
    problem = _problem(input, weight, counts, dst_offsets, scale, rows_out, group_name)
    return weight.new_empty((problem.rows_out, problem.n))


@torch.library.custom_op(
    f"fusedcc::{_OPERATOR}_out", mutates_args=("out",), schema=f"({_OPERANDS}, Tensor(a!) out) -> ()"
)
def gemm_out(
    input: Tensor, weight: Tensor, counts: Tensor, dst_offsets: Tensor, scale: Tensor | None, rows_out: int,
    group_name: str, out: Tensor,
) -> None:  # fmt: skip
    operands = input, weight, counts, dst_offsets, scale
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(*operands, rows_out, group_name, out), out)
    memory.run_out(symm, _OPERATOR, problem, out, _operands(*operands))


@gemm_out.register_fake
def _(
    input: Tensor, weight: Tensor, counts: Tensor, dst_offsets: Tensor, scale: Tensor | None, rows_out: int,
    group_name: str, out: Tensor,
) -> None:  # fmt: skip
    _problem(input, weight, counts, dst_offsets, scale, rows_out, group_name, out)


def _operands(input: Tensor, weight: Tensor, *small: Tensor | None) -> tuple[Tensor | None, ...]:
    return input.contiguous(), weight, *(t if t is None else t.contiguous() for t in small)


def routes(counts: Tensor, dst_offsets: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each row of the input: (its expert, its destination, its row there, whether it is counted), on the device."""
    ends = counts.flatten().cumsum(0)
    place = torch.arange(rows, device=counts.device)
    block = torch.searchsorted(ends, place, right=True).clamp(max=len(ends) - 1)
    start = (ends - counts.flatten())[block]
    live = place < ends[-1]
    dst_row = torch.where(live, dst_offsets.flatten()[block].long() + place - start, 0)
    ranks = counts.shape[1]
    return block // ranks, block % ranks, dst_row, live


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, counts, dst_offsets, scale, ctx.rows_out, ctx.group_name = inputs
    ctx.save_for_backward(input, weight, counts, dst_offsets, scale)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Of the sum of all ranks' losses. Every shape is static and the host learns no count, so a graph can capture it.

    That has a price: every rank gathers all ranks' gradients and picks its rows, and each expert multiplies all rows, the
    others' set to zero. A row that several blocks would have written has no defined gradient.
    """
    input, weight, counts, dst_offsets, scale = ctx.saved_tensors
    need_input, need_weight, _, _, need_scale, _, _ = ctx.needs_input_grad
    expert, dest, dst_row, live = routes(counts, dst_offsets, input.shape[0])
    everybody = all_gather(grad, ctx.group_name, counts.shape[1])
    of_row = everybody[dest * ctx.rows_out + dst_row] * live.unsqueeze(1)
    x, w = input, weight
    if scale is not None:  # in float32, so that the factor is not a second rounding
        of_row, x, w = of_row.float(), x.float(), w.float()
    scaled = of_row if scale is None else of_row * scale.unsqueeze(1)
    grad_input = torch.zeros_like(x) if need_input else None
    grad_weight: list[Tensor] = []
    grad_scale = torch.zeros_like(scale) if need_scale and scale is not None else None
    for number in range(weight.shape[0]):
        mine = (expert == number).unsqueeze(1)
        rows = torch.where(mine, scaled, 0)
        if grad_input is not None:
            grad_input = grad_input + rows @ w[number]
        if need_weight:
            grad_weight.append(rows.T @ torch.where(live.unsqueeze(1), x, 0))
        if grad_scale is not None:
            grad_scale = grad_scale + (torch.where(mine, of_row, 0) * (x @ w[number].T)).sum(1)
    return (
        None if grad_input is None else grad_input.to(input.dtype),
        torch.stack(grad_weight).to(weight.dtype) if need_weight else None,
        None,
        None,
        grad_scale,
        None,
        None,
    )


gemm_owned.register_autograd(_gradients, setup_context=_save)
