"""Arms of embedding + All-to-All."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from . import Arm, Bench, Unavailable, with_config

Call = Callable[[int], torch.Tensor]
PUSH_WGS = 132


def _own(b: Bench, out: torch.Tensor) -> Call:
    """This repository's compute kernel: [global batch, tables of this rank, dim]."""
    from kernels import embedding_all_to_all as op

    config = op.default_config(b.problem, b.symm, "compute")
    return with_config(lambda slot: op.compute(b.symm, b.problem, b.slots[slot]["tables"], out, config), config)


def _batch_major(b: Bench, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(indices into the concatenated tables, offsets), bags in the order (bag, table): made outside of what is timed."""
    memo = b.memo.setdefault("batch_major", {})
    if slot not in memo:
        tables = b.slots[slot]["tables"]
        count, batch = b.problem.tables[b.symm.rank], b.problem.batch
        offsets = tables.offsets.long()
        lengths = offsets.diff().view(count, batch)
        table_of = torch.arange(count, device=offsets.device).repeat_interleave(lengths.sum(1))
        rows = tables.indices.long() + tables.table_offsets[table_of]
        starts = offsets[:-1].view(count, batch).T.reshape(-1)
        new_lengths = lengths.T.reshape(-1)
        new_offsets = torch.cat([offsets.new_zeros(1), new_lengths.cumsum(0)])
        within = torch.arange(len(rows), device=rows.device) - new_offsets[:-1].repeat_interleave(new_lengths)
        taken = rows[starts.repeat_interleave(new_lengths) + within]
        fits = tables.weight.shape[0] < 2**31
        kind = torch.int32 if fits and len(taken) < 2**31 else torch.int64
        memo[slot] = taken.to(kind), new_offsets.to(kind)
    return memo[slot]


def _bag_one(b: Bench, out: torch.Tensor) -> Call:
    """One F.embedding_bag over the concatenated tables, bags already in the order that the collective wants: a favour."""
    inputs = [_batch_major(b, slot) for slot in range(len(b.slots))]

    def call(slot: int) -> torch.Tensor:
        weight = b.slots[slot]["tables"].weight
        pooled = F.embedding_bag(
            inputs[slot][0], weight, inputs[slot][1], mode=b.problem.pooling_mode, include_last_offset=True
        )
        return pooled.view(out.shape)

    return call


def _bag_each(b: Bench, out: torch.Tensor) -> Call:
    """One F.embedding_bag a table, as a list of nn.EmbeddingBag does, each result copied to its place in the batch."""
    parts: list[list[tuple[torch.Tensor, ...]]] = []
    batch, count = b.problem.batch, b.problem.tables[b.symm.rank]
    for operands in b.slots:
        tables = operands["tables"]
        ends = [*tables.table_offsets.tolist(), tables.weight.shape[0]]
        mine = []
        for t in range(count):
            offsets = tables.offsets[t * batch : (t + 1) * batch + 1]
            low, high = int(offsets[0]), int(offsets[-1])
            mine.append((tables.indices[low:high], tables.weight[ends[t] : ends[t + 1]], offsets - low))
        parts.append(mine)

    def call(slot: int) -> torch.Tensor:
        for t, (indices, weight, offsets) in enumerate(parts[slot]):
            out[:, t] = F.embedding_bag(indices, weight, offsets, mode=b.problem.pooling_mode, include_last_offset=True)
        return out

    return call


COMPUTES = {"own": _own, "bag_one": _bag_one, "bag_each": _bag_each}


def _pooled(b: Bench) -> torch.Tensor:
    """A buffer for this rank's tables and the global batch; shared by the arms, each of which writes all of it."""
    if "pooled" not in b.memo:
        shape = (b.problem.batch, b.problem.tables[b.symm.rank], b.problem.dim)
        b.memo["pooled"] = torch.empty(shape, dtype=b.problem.dtype, device=b.symm.device)
    return b.memo["pooled"]


def _nccl(b: Bench, kind: str, permute: bool) -> Call:
    pooled, group, p = _pooled(b), b.group, b.problem
    compute = COMPUTES[kind](b, pooled)
    bags, mine = p.part(b.symm.rank)[1], p.tables[b.symm.rank]
    received = torch.empty(bags * p.all_tables * p.dim, dtype=p.dtype, device=b.symm.device)
    out_splits = [bags * t * p.dim for t in p.tables]
    in_splits = [p.part(d)[1] * mine * p.dim for d in range(p.world_size)]
    final = torch.empty(bags, p.all_tables, p.dim, dtype=p.dtype, device=b.symm.device) if permute else received

    def call(slot: int) -> torch.Tensor:
        result = compute(slot)
        dist.all_to_all_single(received, result.view(-1), out_splits, in_splits, group=group)
        if permute:
            torch.cat([part.view(bags, -1, p.dim) for part in received.split(out_splits)], dim=1, out=final)
        return final

    return call


def _unpermuted(b: Bench) -> Callable[[torch.Tensor], torch.Tensor]:
    def view(received: torch.Tensor) -> torch.Tensor:
        p, bags = b.problem, b.problem.part(b.symm.rank)[1]
        return torch.cat([x.view(bags, -1, p.dim) for x in received.split([bags * t * p.dim for t in p.tables])], dim=1)

    return view


def _push(b: Bench) -> Call:
    """The compute kernel, then a plain kernel that pushes each part to the rank it belongs to."""
    from ..pushing import push_all_to_all

    b.group  # noqa: B018 - raises Unavailable for a single rank
    p, pooled = b.problem, _pooled(b)
    compute = _own(b, pooled)
    mine = p.tables[b.symm.rank]
    out = b.symmetric("out", (p.batch_max, p.all_tables, p.dim), p.dtype)
    column = p.first_table(b.symm.rank) * p.dim
    parts = [(first * mine * p.dim, bags, column) for first, bags in (p.part(d) for d in range(p.world_size))]
    push = push_all_to_all(b, pooled, out, parts, (mine * p.dim, p.all_tables * p.dim), PUSH_WGS)

    def call(slot: int) -> torch.Tensor:
        compute(slot)
        push()
        return out

    return call


def _fused(b: Bench, transport: str, owned: bool) -> Call:
    from kernels import embedding_all_to_all as op

    p = b.problem
    out = b.symmetric("out", (p.batch_max, p.all_tables, p.dim), p.dtype)
    config = replace(op.default_config(p, b.symm), transport=transport)

    def call(slot: int) -> torch.Tensor:
        result = op.fused(b.symm, p, b.slots[slot]["tables"], out, config)
        return result.clone() if owned else result

    return with_config(call, config)


def _decomposed(b: Bench) -> Call:
    """Wang et al.: one destination's bags after the other, each on its way while the next is pooled."""
    from kernels import embedding_all_to_all as op

    b.group  # noqa: B018 - raises Unavailable for a single rank
    p, config = b.problem, op.default_config(b.problem, b.symm, "compute")
    out = torch.empty(p.batch_max, p.all_tables, p.dim, dtype=p.dtype, device=b.symm.device)
    return with_config(lambda slot: op.decomposed(b.symm, p, b.slots[slot]["tables"], out, config), config)


def _vdev(b: Bench) -> Call:
    raise Unavailable(
        "torch's all_to_all_vdev needs the NVSHMEM backend of symmetric memory, which this run does not use"
    )


def arms(b: Bench) -> list[Arm]:
    """Fused first, then what a user would do without it."""

    def compute(kind: str) -> Callable[[], Call]:
        return lambda: COMPUTES[kind](b, _pooled(b))

    found: list[Arm] = [
        Arm("fused.peer", "fused", "out", lambda: _fused(b, "peer", False)),
        Arm("fused.peer.owned", "fused", "owned", lambda: _fused(b, "peer", True)),
        *(Arm(k, "compute", "none", compute(k), "partial", k != "own") for k in COMPUTES),
    ]
    if b.world == 1:
        return found
    found.append(Arm("staged", "staged", "out", lambda: _fused(b, "staged", False)))
    found.append(Arm("fused.rdma", "fused", "out", lambda: _fused(b, "rdma", False)))
    view: dict[bool, Any] = {False: _unpermuted(b), True: lambda result: result}
    for kind in COMPUTES:
        for permute in (False, True):
            name = f"{kind}+nccl" + ("+permute" if permute else "")
            make = lambda kind=kind, permute=permute: _nccl(b, kind, permute)
            found.append(Arm(name, "bulk", "none", make, "result", 1, view=view[permute]))
    found.append(Arm("own+push", "push", "out", lambda: _push(b)))
    found.append(Arm("decomposed", "decomposed", "none", lambda: _decomposed(b)))
    found.append(Arm("own+vdev", "bulk", "none", lambda: _vdev(b)))
    return found
