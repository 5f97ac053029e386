"""torch.distributed's functional collectives with the gradients that parallel layers need; traceable by torch.compile.

`torch.distributed._functional_collectives` differentiates some of them in torch 2.13 and fewer in 2.11; these say which
gradient they mean and are the same in both.
"""

from typing import Any

import torch
from torch import Tensor

_C10D = torch.ops._c10d_functional


def _all_reduce(tensor: Tensor, group_name: str) -> Tensor:
    return _C10D.wait_tensor(_C10D.all_reduce(tensor.contiguous(), "sum", group_name))


def _all_to_all(tensor: Tensor, received: list[int], sent: list[int], group_name: str) -> Tensor:
    return _C10D.wait_tensor(_C10D.all_to_all_single(tensor.contiguous(), received, sent, group_name))


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group_name: str) -> Tensor:
        return _all_reduce(tensor, group_name)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group_name: str) -> Tensor:
        ctx.group_name = group_name
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_reduce(grad, ctx.group_name), None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, received: list[int], sent: list[int], group_name: str) -> Tensor:
        ctx.splits = received, sent, group_name
        return _all_to_all(tensor, received, sent, group_name)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        received, sent, group_name = ctx.splits
        return _all_to_all(grad, sent, received, group_name), None, None, None


def sum_over_ranks(tensor: Tensor, group_name: str) -> Tensor:
    """All-reduce (sum) whose result, and hence its gradient, is the same on every rank: the gradient passes unchanged."""
    return _SumOverRanks.apply(tensor, group_name)


def copy_to_ranks(tensor: Tensor, group_name: str) -> Tensor:
    """Identity on a tensor that every rank holds and each uses for its own part: the ranks' gradients are added."""
    return _CopyToRanks.apply(tensor, group_name)


def all_to_all(tensor: Tensor, received: list[int], sent: list[int], group_name: str) -> Tensor:
    """All-to-all of rows: `sent[p]` rows to rank p, `received[p]` from it, in rank order; gradients go back the way they came."""
    return _AllToAll.apply(tensor, received, sent, group_name)


def all_gather(tensor: Tensor, group_name: str, world_size: int) -> Tensor:
    """Every rank's tensor, one behind the other along dimension 0, in rank order; not differentiable."""
    return _C10D.wait_tensor(_C10D.all_gather_into_tensor(tensor.detach().contiguous(), world_size, group_name))
