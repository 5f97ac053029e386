"""The library collectives that the `bulk` baselines end with: torch.distributed's, or a host exchange where there is no group."""

import torch
import torch.distributed as dist

from .symmetric import SymmetricMemory


def all_reduce(symm: SymmetricMemory, tensor: torch.Tensor) -> None:
    """Sum `tensor` over ranks, in place."""
    group = getattr(symm, "group", None)
    if group is not None:
        dist.all_reduce(tensor, group=group)
        return
    parts = symm.exchange(tensor.detach().cpu().clone())
    total = sum((p.float() for p in parts[1:]), parts[0].float())
    tensor.copy_(total.to(tensor.dtype))


def all_to_all(
    symm: SymmetricMemory,
    received: torch.Tensor,
    sent: torch.Tensor,
    received_splits: list[int] | None = None,
    sent_splits: list[int] | None = None,
) -> None:
    """Part d of `sent` to rank d; the part from rank s becomes part s of `received`. Splits count dimension 0; None: equal."""
    group = getattr(symm, "group", None)
    if group is not None:
        dist.all_to_all_single(received, sent, received_splits, sent_splits, group=group)
        return
    parts = sent.detach().cpu().clone().split(sent_splits or [len(sent) // symm.world_size] * symm.world_size)
    received.copy_(torch.cat([theirs[symm.rank] for theirs in symm.exchange(list(parts))]))


def shift(symm: SymmetricMemory, sent: torch.Tensor, received: torch.Tensor, hop: int) -> None:
    """`sent` to rank + hop while the one of rank - hop arrives in `received`: one step of a collective permute."""
    destination, source = (symm.rank + hop) % symm.world_size, (symm.rank - hop) % symm.world_size
    group = getattr(symm, "group", None)
    if group is not None:
        ends = ((dist.isend, sent, destination), (dist.irecv, received, source))
        pairs = [dist.P2POp(op, t, group=group, group_peer=peer) for op, t, peer in ends if t.numel()]
        for work in dist.batch_isend_irecv(pairs) if pairs else []:
            work.wait()
        return
    received.copy_(symm.exchange(sent.detach().cpu().clone())[source])
