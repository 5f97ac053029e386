"""The torch operators under other process groups than the world of a few ranks: subgroups, grids, groups that come and go.

FUSEDCC_LONG=1 python -m pytest tests/kernels/test_groups.py tests/kernels/test_examples.py     # worlds of 8 ranks too
"""

import os

import pytest
import torch
import torch.distributed as dist
from torch_ranks import pool, within

LONG = pytest.mark.skipif("FUSEDCC_LONG" not in os.environ, reason="16 processes: set FUSEDCC_LONG=1")


def all_operators(group: dist.ProcessGroup | None, seed: int, calls: int = 2) -> None:
    """Both faces of every operator in a group, against the float64 reference; ranks are those within the group."""
    for call in range(calls):
        for check in (_gemv, _embedding, _gemm):
            check(group, dist.get_rank(group), dist.get_world_size(group), 100 * seed + call)


def _generator(seed: int, rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(64 * seed + rank)


def _gemv(group, rank: int, ranks: int, seed: int) -> None:
    from kernels import gemv_all_reduce as gemv
    from kernels import ops

    m, k, batch = 37, 20 + seed % 3, 2
    pairs = []
    for r in range(ranks):
        g = _generator(seed, r)
        pairs.append((torch.randn(batch, k, generator=g), torch.randn(m, k, generator=g)))
    exact, magnitude = gemv.reference([w for _, w in pairs], [x for x, _ in pairs])
    bound = gemv.error_bound(gemv.Problem(m, k, batch, torch.float32, ranks), exact, magnitude)
    out = ops.empty_symmetric((batch, m), torch.float32, group)
    ops.gemv_all_reduce_out(*pairs[rank], group=group, out=out)
    assert within(out, exact, bound)
    assert torch.equal(ops.gemv_all_reduce(*pairs[rank], group=group), out)


def _embedding(group, rank: int, ranks: int, seed: int) -> None:
    from kernels import embedding_all_to_all as embedding
    from kernels import ops

    batch, dim, rows, counts = 2 * ranks + 1 + seed % 2, 10, 8, tuple(1 + r % 2 for r in range(ranks))
    problem = embedding.Problem(batch, counts, dim, torch.float32, ranks)
    tables = []
    for r in range(ranks):
        g = _generator(seed, r)
        offsets = torch.cat(
            [torch.zeros(1, dtype=torch.int64), torch.randint(0, 4, (counts[r] * batch,), generator=g).cumsum(0)]
        )
        indices = torch.randint(0, rows, (int(offsets[-1]),), generator=g)
        weight = torch.randn(counts[r] * rows, dim, generator=g)
        tables.append(embedding.Tables(weight, torch.arange(counts[r]) * rows, indices, offsets))
    exact, magnitude = embedding.reference(problem, tables, rank)
    bound = embedding.error_bound(problem, exact, magnitude, 3)
    mine = (tables[rank].weight, tables[rank].table_offsets, tables[rank].indices, tables[rank].offsets)
    owned = ops.embedding_all_to_all(*mine, tables=counts, group=group)
    assert within(owned, exact, bound)
    out = ops.empty_symmetric((problem.batch_max, problem.all_tables, dim), torch.float32, group)
    ops.embedding_all_to_all_out(*mine, tables=counts, group=group, out=out)
    assert torch.equal(out[: len(owned)], owned)


def _gemm(group, rank: int, ranks: int, seed: int) -> None:
    from kernels import gemm_all_to_all as gemm
    from kernels import ops

    rows, n, k, experts = 20, 12, 8, 2
    rows_out = rows * ranks
    problem = gemm.Problem(rows, rows_out, n, k, experts, torch.float32, ranks, True)
    counts = torch.randint(
        0, rows // (experts * ranks) + 1, (ranks, experts, ranks), generator=_generator(seed, 60)
    ).int()
    everybody = []
    for r in range(ranks):
        g = _generator(seed, r)
        x, w = torch.randn(rows, k, generator=g), torch.randn(experts, n, k, generator=g)
        places = gemm.destination_offsets(counts, r)
        everybody.append(gemm.Experts(x, w, counts[r], places, torch.rand(rows, generator=g)))
    exact, magnitude, covered = gemm.reference(problem, everybody, rank)
    bound = gemm.error_bound(problem, exact, magnitude)
    mine = everybody[rank]
    operands = (mine.x, mine.weight, mine.counts, mine.dst_offsets, mine.scale)
    owned = ops.gemm_all_to_all(*operands, rows_out=rows_out, group=group)
    assert within(owned, exact, bound) and not owned[~covered].any()
    out = ops.empty_symmetric((rows_out, n), torch.float32, group)
    ops.gemm_all_to_all_out(*operands, group=group, out=out)
    assert torch.equal(out, owned)


def in_subgroup() -> None:
    """Ranks 1 and 3 of 4, in this order; the others do something else meanwhile, and are told that they are no members."""
    from kernels import ops

    group = dist.new_group([1, 3])
    if dist.get_rank() in (1, 3):
        all_operators(group, 1)
    else:
        with pytest.raises(ops.ProblemError, match="^group is -100; allowed: a process group that this rank is in"):
            ops.empty_symmetric(4, torch.float32, group)
    three = dist.new_group([0, 1, 2])
    if dist.get_rank() < 3:
        with pytest.raises(ops.ProblemError, match="^world_size is 3; allowed: 1, 2, 4 or 8$"):
            ops.gemv_all_reduce(torch.ones(1, 4), torch.ones(4, 4), group=three)
    all_operators(None, 2, calls=1)  # the world, afterwards, beside the subgroup's memory


def test_subgroup():
    pool(4).run(in_subgroup)


def on_grid() -> None:
    """Two tensor-parallel groups at once, then two data-parallel ones that cross them; each has data of its own."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
    row, column = mesh.get_coordinate()
    all_operators(tp, 10 + row, calls=1)
    all_operators(dp, 30 + column, calls=1)


def test_disjoint_groups_at_once_on_a_grid():
    pool(4).run(on_grid)


def layers_on_grid() -> None:
    """A row-parallel layer, tensor-parallel within rows of the grid, its gradients averaged across: equal to one process."""
    from kernels.modules import RowParallelLinear

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    row, column = mesh.get_coordinate()
    torch.manual_seed(0)
    whole, x = torch.nn.Linear(16, 9), torch.randn(2, 3, 16)
    layer = RowParallelLinear(16, 9, group=mesh.get_group("tp"))
    layer.load_full(whole.weight, whole.bias)
    layer(x[row][:, 8 * column : 8 * column + 8]).square().sum().backward()
    dist.all_reduce(layer.weight.grad, group=mesh.get_group("dp"))
    whole(x.view(6, 16)).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, whole.weight.grad[:, 8 * column : 8 * column + 8], rtol=0, atol=1e-4)


def test_layers_on_a_grid():
    pool(4).run(layers_on_grid)


def started_again(store: str) -> None:
    """The default group is destroyed and made anew under the same name: nothing of the old one is used or left."""
    from kernels import ops
    from kernels.ops import memory

    all_operators(None, 5, calls=1)
    old = memory.symmetric_memory(None, "cpu")
    name, rank, ranks = ops.group_name(None), dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    with pytest.raises(ops.ProblemError, match=r"^group is None; allowed: .*init_process_group"):
        ops.gemv_all_reduce(torch.ones(1, 2), torch.ones(2, 2))
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    assert ops.group_name(None) == name
    all_operators(None, 6, calls=1)
    assert memory.symmetric_memory(None, "cpu") is not old
    assert old._companion.poll() is not None, "the old group's process still runs"


def test_a_group_made_anew_gets_memory_of_its_own(tmp_path):
    pool(2).run(started_again, str(tmp_path / "store"))


@LONG
def test_eight_ranks():
    pool(8).run(all_operators, None, 7, timeout_s=400)
