"""`torch.ops.fusedcc.gemv_all_reduce` and `gemv_all_reduce_out`."""

from typing import Any

import torch
from torch import Tensor

from .. import gemv_all_reduce
from ..checks import check_devices
from ..errors import require
from . import memory

_OPERATOR = "gemv_all_reduce"
_OPERANDS = "Tensor input, Tensor weight, Tensor? bias, Tensor? residual, str group_name"


def _problem(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    group_name: str,
    out: Tensor | None = None,
) -> gemv_all_reduce.Problem:
    """What these operands ask for, checked; the same checks run while tracing, on fake tensors."""
    check_devices(weight.device, input=input, bias=bias, residual=residual)
    require(weight.dim() == 2, "shape of weight", tuple(weight.shape), "[m, k]")
    require(weight.is_contiguous(), "stride of weight", weight.stride(), "contiguous")
    m, k = weight.shape
    require(input.dim() == 2 and input.shape[1] == k, "shape of input", tuple(input.shape), f"[batch, {k}]")
    batch = input.shape[0]
    for name, extra, shape in (("bias", bias, (m,)), ("residual", residual, (batch, m))):
        if extra is not None:
            require(tuple(extra.shape) == shape, f"shape of {name}", tuple(extra.shape), str(shape))
            require(extra.dtype == weight.dtype, f"dtype of {name}", str(extra.dtype), str(weight.dtype))
    require(input.dtype == weight.dtype, "dtype of input", str(input.dtype), str(weight.dtype))
    ranks = memory.process_group(group_name).size()
    problem = gemv_all_reduce.Problem(m, k, batch, weight.dtype, ranks, bias is not None, residual is not None)
    if out is not None:
        # The owner of a row reads its residual before anybody stores there, so that may be `out` itself.
        operands = {"input": input, "weight": weight, "bias": bias, "residual": residual}
        memory.check_out(out, (batch, m), weight.dtype, weight.device, in_place="residual", **operands)
    return problem


def _operands(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> tuple[Tensor | None, ...]:
    """What the kernel takes: contiguous; the weight is never copied."""
    bias, residual = (t if t is None else t.contiguous() for t in (bias, residual))
    return input.contiguous(), weight, bias, residual


@torch.library.custom_op(f"fusedcc::{_OPERATOR}", mutates_args=(), schema=f"({_OPERANDS}) -> Tensor")
def gemv_owned(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, group_name: str) -> Tensor:
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(input, weight, bias, residual, group_name))
    shape = problem.batch, problem.m
    return memory.run_owned(symm, _OPERATOR, problem, shape, _operands(input, weight, bias, residual)).clone()


@gemv_owned.register_fake
def _(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, group_name: str) -> Tensor:
    problem = _problem(input, weight, bias, residual, group_name)
    return weight.new_empty((problem.batch, problem.m))


@torch.library.custom_op(
    f"fusedcc::{_OPERATOR}_out", mutates_args=("out",), schema=f"({_OPERANDS}, Tensor(a!) out) -> ()"
)
def gemv_out(
    input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, group_name: str, out: Tensor
) -> None:
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(input, weight, bias, residual, group_name, out), out)
    memory.run_out(symm, _OPERATOR, problem, out, _operands(input, weight, bias, residual))


@gemv_out.register_fake
def _(
    input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, group_name: str, out: Tensor
) -> None:
    _problem(input, weight, bias, residual, group_name, out)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, _, _, _ = inputs
    ctx.save_for_backward(input, weight)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The result is the same on every rank, and so must its gradient be: nothing is communicated."""
    input, weight = ctx.saved_tensors
    need_input, need_weight, need_bias, need_residual, _ = ctx.needs_input_grad
    return (
        grad @ weight if need_input else None,
        grad.T @ input if need_weight else None,
        grad.sum(0) if need_bias else None,
        grad if need_residual else None,
        None,
    )


gemv_owned.register_autograd(_gradients, setup_context=_save)
