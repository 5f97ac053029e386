"""Arms of GEMM + All-to-All."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist

from ...operators.gemm import row_counts
from . import Arm, Bench, Unavailable, with_config

Call = Callable[[int], torch.Tensor]
PUSH_WGS = 132


def _own(b: Bench, out: torch.Tensor) -> Call:
    """This repository's grouped GEMM: rows ordered by (destination, expert), ready to be sent."""
    from kernels import gemm_all_to_all as op

    config = op.default_config(b.problem, b.symm, "compute")
    return with_config(lambda slot: op.compute(b.symm, b.problem, b.slots[slot]["experts"], out, config), config)


def _blocks(b: Bench) -> list[tuple[int, int, int, int]]:
    """(expert, first row in x, rows, first row by (destination, expert)) of each block that has rows; the host knows them: a favour."""
    counts = row_counts(b.case, b.problem.rows, b.world)[b.symm.rank]
    by_expert = counts.reshape(-1).cumsum().reshape(counts.shape) - counts
    by_dest = (counts.T.reshape(-1).cumsum().reshape(counts.T.shape) - counts.T).T
    return [
        (e, int(by_expert[e, d]), int(counts[e, d]), int(by_dest[e, d]))
        for e in range(counts.shape[0])
        for d in range(counts.shape[1])
        if counts[e, d]
    ]


def _cublas_blocks(b: Bench, out: torch.Tensor) -> Call:
    """One cuBLAS product a block of rows (expert, destination), each straight to its place: no reordering, smaller products."""
    blocks = _blocks(b)

    def call(slot: int) -> torch.Tensor:
        experts = b.slots[slot]["experts"]
        for e, source, rows, target in blocks:
            torch.mm(experts.x[source : source + rows], experts.weight[e].T, out=out[target : target + rows])
        return out

    return call


def _cublas(b: Bench, out: torch.Tensor) -> Call:
    """One cuBLAS product an expert; rows stay ordered by (expert, destination)."""
    rows = row_counts(b.case, b.problem.rows, b.world)[b.symm.rank].sum(1)
    ends = rows.cumsum()

    def call(slot: int) -> torch.Tensor:
        experts = b.slots[slot]["experts"]
        for e, end in enumerate(ends):
            if rows[e]:
                torch.mm(experts.x[end - rows[e] : end], experts.weight[e].T, out=out[end - rows[e] : end])
        return out

    return call


def _grouped(b: Bench, out: torch.Tensor) -> Call:
    """torch's grouped GEMM: one launch, row counts on the device; rows stay ordered by (expert, destination)."""
    if not hasattr(torch, "_grouped_mm"):
        raise Unavailable("this torch has no _grouped_mm")
    if b.problem.dtype != torch.bfloat16:
        raise Unavailable("torch._grouped_mm takes bfloat16 only")
    ends = [s["experts"].counts.sum(1).cumsum(0).to(torch.int32) for s in b.slots]

    def call(slot: int) -> torch.Tensor:
        experts = b.slots[slot]["experts"]
        return torch._grouped_mm(experts.x, experts.weight.transpose(1, 2), offs=ends[slot])

    return call


def _permutation(b: Bench) -> torch.Tensor:
    """int64 [rows]: where, in (expert, destination) order, each row of the (destination, expert) order stands."""
    order = torch.empty(b.problem.rows, dtype=torch.int64)
    for _, source, rows, target in _blocks(b):
        order[target : target + rows] = torch.arange(source, source + rows)
    return order.to(b.symm.device)


def _private(b: Bench, name: str, rows: int) -> torch.Tensor:
    if name not in b.memo:
        b.memo[name] = torch.empty(rows, b.problem.n, dtype=b.problem.dtype, device=b.symm.device)
    return b.memo[name]


COMPUTES = {
    "own": (_own, False),
    "cublas": (_cublas, True),
    "cublas_blocks": (_cublas_blocks, False),
    "grouped": (_grouped, True),
}


def _nccl(b: Bench, kind: str) -> Call:
    """The compute, where needed the reordering of its rows, then NCCL's all-to-all; split sizes known to the host: a favour."""
    make, reorder = COMPUTES[kind]
    group, counts = b.group, row_counts(b.case, b.problem.rows, b.world)
    compute = make(b, _private(b, "product", b.problem.rows))
    order = _permutation(b) if reorder and b.problem.experts > 1 else None
    sent_rows = [int(c) for c in counts[b.symm.rank].sum(0)]
    received_rows = [int(c) for c in counts[:, :, b.symm.rank].sum(1)]
    received = _private(b, "received", b.problem.rows_out)[: sum(received_rows)]
    reordered = _private(b, "reordered", b.problem.rows)

    def call(slot: int) -> torch.Tensor:
        product = compute(slot)
        if order is not None:
            product = torch.index_select(product, 0, order, out=reordered)
        dist.all_to_all_single(received, product, received_rows, sent_rows, group=group)
        return received

    return call


def _decomposed(b: Bench) -> Call:
    """Wang et al.: one destination's rows after the other, each on its way while the next is computed; splits known: a favour."""
    from kernels import gemm_all_to_all as op

    b.group  # noqa: B018 - raises Unavailable for a single rank
    counts = row_counts(b.case, b.problem.rows, b.world)
    known = [int(c) for c in counts[b.symm.rank].sum(0)], [int(c) for c in counts[:, :, b.symm.rank].sum(1)]
    out, config = _private(b, "received", b.problem.rows_out), op.default_config(b.problem, b.symm, "compute")

    def call(slot: int) -> torch.Tensor:
        return op.decomposed(b.symm, b.problem, b.slots[slot]["experts"], out, config, known)

    return with_config(call, config)


def _push(b: Bench) -> Call:
    """The compute kernel, then a plain kernel that pushes each block to the rank it belongs to."""
    from ..pushing import push_all_to_all

    b.group  # noqa: B018 - raises Unavailable for a single rank
    p, counts = b.problem, row_counts(b.case, b.problem.rows, b.world)
    product = _private(b, "product", p.rows)
    compute = _own(b, product)
    sent = counts[b.symm.rank].sum(0)
    first = sent.cumsum() - sent
    earlier = counts[: b.symm.rank].sum((0, 1))  # rows of the ranks before this one, by destination
    out = b.symmetric("out", (p.rows_out, p.n), p.dtype)
    parts = [(int(first[d]) * p.n, int(sent[d]), int(earlier[d]) * p.n) for d in range(p.world_size)]
    push = push_all_to_all(b, product, out, parts, (p.n, p.n), PUSH_WGS)

    def call(slot: int) -> torch.Tensor:
        compute(slot)
        push()
        return out

    return call


def _fused(b: Bench, transport: str, owned: bool) -> Call:
    from kernels import gemm_all_to_all as op

    out = b.symmetric("out", (b.problem.rows_out, b.problem.n), b.problem.dtype)
    config = replace(op.default_config(b.problem, b.symm), transport=transport)

    def call(slot: int) -> torch.Tensor:
        result = op.fused(b.symm, b.problem, b.slots[slot]["experts"], out, config)
        return result.clone() if owned else result

    return with_config(call, config)


def arms(b: Bench) -> list[Arm]:
    """Fused first, then what a user would do without it."""
    order = _permutation(b)

    def compute(kind: str) -> Arm:
        make, by_expert = COMPUTES[kind]
        view = (lambda product: product[order]) if by_expert else (lambda product: product)
        product = lambda: make(b, _private(b, "product", b.problem.rows))
        return Arm(kind, "compute", "none", product, "partial", 2 * (kind != "own"), view=view)

    found = [
        Arm("fused.peer", "fused", "out", lambda: _fused(b, "peer", False)),
        Arm("fused.peer.owned", "fused", "owned", lambda: _fused(b, "peer", True)),
        *(compute(kind) for kind in COMPUTES),
    ]
    if b.world > 1:
        found.append(Arm("staged", "staged", "out", lambda: _fused(b, "staged", False)))
        found.append(Arm("fused.rdma", "fused", "out", lambda: _fused(b, "rdma", False)))
        found += [
            Arm(f"{k}+nccl", "bulk", "none", lambda k=k: _nccl(b, k), "result", 2 * (k != "own")) for k in COMPUTES
        ]
        found.append(Arm("own+push", "push", "out", lambda: _push(b)))
        found.append(Arm("decomposed", "decomposed", "none", lambda: _decomposed(b)))
    return found
