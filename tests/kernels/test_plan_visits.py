"""The plan of each operator is what its kernel visits, work-group by work-group, in order."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from operator_program import embedding_operands, gemm_counts

import emulator
from kernels import embedding_problem, gemm_problem, gemv_all_reduce, plan

PROGRAM = f"{Path(__file__).parent / 'operator_program.py'}::"
F32 = torch.float32


@pytest.fixture(scope="module")
def pool() -> Iterator[emulator.Ranks]:
    with emulator.Ranks(4, timeout_s=60, heap_bytes=1 << 22) as ranks:
        yield ranks


def planned(p: plan.Plan) -> dict[int, list[int]]:
    return {int(wg): [int(n) for n in p.order[p.wg == wg]] for wg in np.unique(p.wg)}


def starts_with(p: plan.Plan) -> set[int]:
    """The destinations that work-groups serve first."""
    return {int(p.dest[p.wg == wg][0]) for wg in np.unique(p.wg)}


def remote_tiles_come_first(p: plan.Plan, rank: int) -> bool:
    """In every work-group's list no tile for another rank stands behind one for the rank itself."""
    return all(np.all(np.diff((p.dest[p.wg == wg] == rank).astype(int)) >= 0) for wg in np.unique(p.wg))


@pytest.mark.parametrize("order", plan.ORDERS)
@pytest.mark.parametrize("world_fraction", [(9, (2, 1, 3, 1)), (3, 2)])
def test_embedding(pool: emulator.Ranks, order: str, world_fraction: tuple[int, Any]) -> None:
    batch, tables = world_fraction
    problem = embedding_problem.Problem(batch, tables, 4, F32, 4)
    changes = {"block_b": 2, "block_d": 4, "order": order, "grid": 3}
    config = replace(embedding_problem.Config(), **changes)
    for rank, seen in enumerate(pool.run(PROGRAM + "visits", problem, changes, 1)):
        # Logical work-groups are numbered by destination, block of bags, table: by (first bag, table).
        number = {key: n for n, key in enumerate(sorted(key for keys in seen.values() for key in keys))}
        lengths = np.diff(embedding_operands(problem, rank, 100, 5).offsets.numpy()).reshape(-1, batch)
        p = embedding_problem.make_plan(problem, config, rank, lengths)
        assert {wg: [number[key] for key in keys] for wg, keys in seen.items()} == planned(p)
        assert p.flops.sum() == lengths.sum() * problem.dim
        assert p.bytes_sent.sum() == batch * problem.tables[rank] * problem.dim * 4
        assert remote_tiles_come_first(p, rank) or order == "oblivious"


@pytest.mark.parametrize("order", plan.ORDERS)
@pytest.mark.parametrize("uneven", [False, True])
def test_gemm(pool: emulator.Ranks, order: str, uneven: bool) -> None:
    problem = gemm_problem.Problem(150, 400, 40, 16, 2, F32, 4)
    changes = {"block_m": 16, "block_n": 16, "block_k": 16, "group_m": 2, "order": order, "grid": 3}
    config = replace(gemm_problem.Config(), **changes)
    counts = gemm_counts(problem, 100, uneven)
    for rank, seen in enumerate(pool.run(PROGRAM + "visits", problem, changes | {"uneven": uneven}, 1)):
        p = gemm_problem.make_plan(problem, config, rank, counts[rank].numpy())
        assert seen == planned(p)
        assert p.flops.sum() == 2 * int(counts[rank].sum()) * problem.n * problem.k
        assert remote_tiles_come_first(p, rank) or order == "oblivious"


@pytest.mark.parametrize("order", plan.ORDERS)
@pytest.mark.parametrize(("m", "grid"), [(70, 3), (20, 4), (9, 2), (130, 4)])
def test_gemv(pool: emulator.Ranks, order: str, m: int, grid: int) -> None:
    """Also where a work-group has no tile for some owner, none for others at all, or an owner has none."""
    problem = gemv_all_reduce.Problem(m, 8, 1, F32, 4)
    changes = {"algorithm": "two_phase", "block_m": 4, "order": order, "grid": grid}
    for rank, seen in enumerate(pool.run(PROGRAM + "visits", problem, changes, 1)):
        p = gemv_all_reduce.make_plan(problem, replace(gemv_all_reduce.Config(), **changes), rank)
        assert seen == planned(p)
        assert remote_tiles_come_first(p, rank) or order == "oblivious"


def test_interleaved_work_groups_start_with_every_remote_rank() -> None:
    for rank in range(4):
        p = plan.make(6, "interleaved", rank, 4, np.arange(48) // 12, *np.ones((3, 48)))
        assert starts_with(p) == {0, 1, 2, 3} - {rank}
        assert remote_tiles_come_first(p, rank)
        # Each remote rank is served by as many work-groups as any other at every step.
        for step in p.dest[: 6 * 6].reshape(6, 6):
            assert sorted(step) == sorted([other for other in range(4) if other != rank] * 2)
