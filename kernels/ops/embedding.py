"""`torch.ops.fusedcc.embedding_all_to_all` and `embedding_all_to_all_out`."""

from typing import Any

import torch
from torch import Tensor

from .. import embedding_all_to_all
from ..checks import check_devices, check_tensor
from ..differentiable import all_to_all
from ..embedding_problem import part_size
from ..errors import require
from . import memory

_OPERATOR = "embedding_all_to_all"
_OPERANDS = (
    "Tensor weight, Tensor table_offsets, Tensor indices, Tensor offsets, Tensor? per_sample_weights, int[] tables, "
    "str pooling_mode, str group_name"
)


def _problem(
    weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None,
    tables: list[int], pooling_mode: str, group_name: str, out: Tensor | None = None,
) -> embedding_all_to_all.Problem:  # fmt: skip
    """What these operands ask for, checked; all but their contents while tracing too, on fake tensors."""
    group = memory.process_group(group_name)
    require(len(tables) == group.size(), "tables", list(tables), f"one number for each of {group.size()} ranks")
    mine = tables[group.rank()]
    require(mine >= 1, f"tables[{group.rank()}]", mine, "1 or more on each rank")
    small = {
        "table_offsets": table_offsets,
        "indices": indices,
        "offsets": offsets,
        "per_sample_weights": per_sample_weights,
    }
    check_devices(weight.device, **small)
    require(weight.dim() == 2, "shape of weight", tuple(weight.shape), "[rows, dim]")
    bags = offsets.numel() - 1
    require(offsets.dim() == 1 and bags >= 0 and bags % mine == 0, "shape of offsets", tuple(offsets.shape), f"[{mine} * batch + 1]")  # fmt: skip
    problem = embedding_all_to_all.Problem(
        batch=bags // mine,
        tables=tuple(tables),
        dim=weight.shape[1],
        dtype=weight.dtype,
        world_size=group.size(),
        pooling_mode=pooling_mode,
        weighted=per_sample_weights is not None,
        index_dtype=indices.dtype,
    )
    if per_sample_weights is not None:
        check_tensor("per_sample_weights", per_sample_weights.contiguous(), (indices.numel(),), torch.float32)
    # The kernel's own checks, of contiguous tensors: what is small is made contiguous, the tables never.
    operands = embedding_all_to_all.Tables(weight, *(t if t is None else t.contiguous() for t in small.values()))
    operands.check(problem, group.rank())
    if memory.readable(weight):
        operands.check_contents(problem)
    if out is not None:
        memory.check_out(out, _room(problem), weight.dtype, weight.device, weight=weight, **small)
    return problem


@torch.library.custom_op(f"fusedcc::{_OPERATOR}", mutates_args=(), schema=f"({_OPERANDS}) -> Tensor")
def embedding_owned(
    weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None,
    tables: list[int], pooling_mode: str, group_name: str,
) -> Tensor:  # fmt: skip
    operands = (weight, table_offsets, indices, offsets, per_sample_weights)
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(*operands, tables, pooling_mode, group_name))
    result = memory.run_owned(symm, _OPERATOR, problem, _room(problem), _operands(*operands))
    return result[: problem.part(symm.rank)[1]].clone()


@embedding_owned.register_fake
def _(
    weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None,
    tables: list[int], pooling_mode: str, group_name: str,
) -> Tensor:  # fmt: skip
    problem = _problem(weight, table_offsets, indices, offsets, per_sample_weights, tables, pooling_mode, group_name)
    rank = memory.process_group(group_name).rank()
    bags = part_size(problem.batch, rank, problem.world_size)
    return weight.new_empty((bags, problem.all_tables, problem.dim))


@torch.library.custom_op(
    f"fusedcc::{_OPERATOR}_out", mutates_args=("out",), schema=f"({_OPERANDS}, Tensor(a!) out) -> ()"
)
def embedding_out(
    weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None,
    tables: list[int], pooling_mode: str, group_name: str, out: Tensor,
) -> None:  # fmt: skip
    operands = (weight, table_offsets, indices, offsets, per_sample_weights)
    symm = memory.symmetric_memory(group_name, weight.device)
    problem = memory.agreed(symm, _OPERATOR, lambda: _problem(*operands, tables, pooling_mode, group_name, out), out)
    memory.run_out(symm, _OPERATOR, problem, out, _operands(*operands))


@embedding_out.register_fake
def _(
    weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None,
    tables: list[int], pooling_mode: str, group_name: str, out: Tensor,
) -> None:  # fmt: skip
    _problem(weight, table_offsets, indices, offsets, per_sample_weights, tables, pooling_mode, group_name, out)


def _room(problem: embedding_all_to_all.Problem) -> tuple[int, int, int]:
    """Shape of the symmetric result, the same on every rank."""
    return problem.batch_max, problem.all_tables, problem.dim


def _operands(weight: Tensor, *small: Tensor | None) -> tuple[Tensor | None, ...]:
    return weight, *(t if t is None else t.contiguous() for t in small)


def positions(indices: Tensor, offsets: Tensor, table_offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each index: (its bag, its row in the flat weight, whether any bag has it), without waiting for the device."""
    bags = offsets.numel() - 1
    place = torch.arange(indices.numel(), device=indices.device)
    live = (place >= offsets[0]) & (place < offsets[-1])
    bag = (torch.searchsorted(offsets, place.to(offsets.dtype), right=True) - 1).clamp(0, bags - 1)
    row = indices.long() + table_offsets[bag // (bags // table_offsets.numel())]
    return bag, torch.where(live, row, 0), live


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, table_offsets, indices, offsets, per_sample_weights, tables, pooling_mode, group_name = inputs
    ctx.save_for_backward(weight, table_offsets, indices, offsets, per_sample_weights)
    ctx.rest = tables, pooling_mode, group_name


def _bag_gradients(grad: Tensor, batch: int, tables: list[int], group_name: str) -> Tensor:
    """The reverse All-to-All: [bags of this rank, all tables, dim] to [tables of this rank * batch, dim]."""
    group = memory.process_group(group_name)
    rank, ranks, dim = group.rank(), group.size(), grad.shape[2]
    counts = [part_size(batch, peer, ranks) for peer in range(ranks)]
    sent = grad.transpose(0, 1).reshape(-1, dim)
    received = all_to_all(
        sent, [tables[rank] * count for count in counts], [count * grad.shape[0] for count in tables], group_name
    )
    parts = received.split([tables[rank] * count for count in counts])
    whole = torch.cat([p.view(tables[rank], count, dim) for p, count in zip(parts, counts, strict=True)], dim=1)
    return whole.reshape(-1, dim)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Of the sum of all ranks' losses: every bag's gradient goes back to the owner of the table."""
    weight, table_offsets, indices, offsets, per_sample_weights = ctx.saved_tensors
    tables, pooling_mode, group_name = ctx.rest
    mine = tables[memory.process_group(group_name).rank()]
    of_bag = _bag_gradients(grad, (offsets.numel() - 1) // mine, tables, group_name).float()
    if pooling_mode == "mean":
        of_bag = of_bag / offsets.diff().clamp(min=1).unsqueeze(1)
    bag, row, live = positions(indices, offsets, table_offsets)
    of_index = of_bag[bag] * live.unsqueeze(1)
    grad_weight = grad_samples = None
    if ctx.needs_input_grad[4]:
        grad_samples = (of_index * weight[row]).sum(1)
    if ctx.needs_input_grad[0]:
        if per_sample_weights is not None:
            of_index = of_index * per_sample_weights.unsqueeze(1)
        sums = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        grad_weight = sums.index_add(0, row, of_index).to(weight.dtype)
    return grad_weight, None, None, None, grad_samples, None, None, None


embedding_owned.register_autograd(_gradients, setup_context=_save)
