"""Embedding + All-to-All: model-parallel tables, data-parallel result, as in a DLRM.

Every rank keeps some tables and pools their rows for the bags of the GLOBAL batch; rank p ends with the pooled vectors of all
tables for its part of the batch, `[batch_local, all tables, dim]`. The owners of the tables write it there, straight from
the work-group that pooled it: no send buffer, no permutation afterwards. Remote parts of the batch first.

Why buffers may be reused without a host in between ("ready is not consumed"): results land in the peer's `out`, which the
peer's consumer of the call before may still be reading, so a rank must learn that this is over.
* A rank raises `entered = e` at every peer when its kernel of call e starts. Stream order puts that after everything
  that read a result of an earlier call, and after its own kernel of call e - 1, hence (tail wait) after all stores into its
  `out` of call e - 1. A work-group acquires `entered >= e` of a destination before its first store there. So stores of call e
  come after the reads and after the stores of all earlier calls, whether `out` is the same tensor or another one that
  overlaps it, and whatever the shapes were: the flags count calls, not tiles.
* The staged variant parks tiles in this rank's own memory; only the work-group that wrote a tile reads it, and a kernel's end
  separates calls.
* Two operators on one heap have flags of their own. If both write one `out`, the same chain holds, since a kernel of
  either ends after its tail wait and the other's `entered` is raised after that.
* Flags: `ready` and `entered` only grow and are compared with >=, so one that is overwritten by the next call's before it was
  read still says what it said. Work-groups that have nothing for a peer raise its flag too: nobody needs to know how the
  work was split. Grid and order of calls are the same on every rank.
No deadlock: raising `entered` waits for nothing and comes first, so (all work-groups are resident) every rank that launches
call e raises it; then every work-group can compute and store everything and raise its `ready` flags before it waits for any.
A rank launches call e when it has finished e - 1, which by induction it does.
* Over rdma slices land in a buffer of the destination that its own kernel of the same call reads, so the same flag guards
  it; the slices' source is overwritten by the next kernel of its own rank, after the sender's `quiet` at the end of this one.
The owned-result face could do without `entered` by alternating between two buffers: whoever is in call e has heard from
every peer in e - 1, which had then finished e - 2 and, in stream order, its copy. The zero-copy face cannot.
"""

from typing import Any

import torch

from . import collectives, plan, rdma
from . import decomposed as decomposition
from .bounds import sum_bound
from .checks import check_devices, check_ranks, check_tensor
from .embedding_device import compute_kernel, fused_kernel
from .embedding_problem import Config, Problem, Tables, default_config, grid_of, logical_starts, make_plan, tuning_key
from .embedding_rdma_device import fused_kernel as rdma_kernel
from .symmetric import SymmetricMemory, require_symmetric
from .workspaces import rdma_workspace, workspace

__all__ = [
    "Config", "Problem", "Tables", "bulk", "compute", "decomposed", "default_config", "error_bound", "fused", "logical_starts", "make_plan",
    "reference", "tuning_key",
]  # fmt: skip


def _arguments(symm: SymmetricMemory, problem: Problem, tables: Tables, config: Config) -> dict[str, Any]:
    """What every kernel takes."""
    return {
        "weight": tables.weight,
        "table_offsets": tables.table_offsets,
        "indices": tables.indices,
        "offsets": tables.offsets,
        "sample_weights": tables.weight if tables.sample_weights is None else tables.sample_weights,
        "tables": problem.tables[symm.rank],
        "rows": tables.weight.shape[0],
        "batch": problem.batch,
        "WORLD": problem.world_size,
        "DIM": problem.dim,
        "MEAN": problem.pooling_mode == "mean",
        "WEIGHTED": problem.weighted,
        "UNROLL": config.unroll,
        "BLOCK_B": config.block_b,
        "BLOCK_D": config.block_d,
    }


def _check(symm: SymmetricMemory, problem: Problem, tables: Tables, out: torch.Tensor, config: Config) -> None:
    check_ranks(symm, "embedding_all_to_all", problem.world_size, (problem, config))
    check_devices(symm.device, out=out, **vars(tables))
    tables.check(problem, symm.rank)
    check_tensor("out", out, (problem.batch_max, problem.all_tables, problem.dim), problem.dtype)


def fused(
    symm: SymmetricMemory, problem: Problem, tables: Tables, out: torch.Tensor, config: Config | None = None
) -> torch.Tensor:
    """One fused launch on this rank; every rank calls with the same problem and config.

    Args:
        symm: this rank's symmetric memory.
        problem: shapes and dtypes.
        tables: this rank's tables and the bags of the global batch for them.
        out: [problem.batch_max, all tables, dim], a symmetric tensor (from `symm.empty`; over rdma any tensor will do).
        config: block sizes, grid, transport; None takes the default one.

    Returns: `out[:bags of this rank]`, complete when the launch is; rows behind it are left alone. Raises `ProblemError` for
    shapes, dtypes, world sizes or grids outside what is allowed.
    """
    config = config or default_config(problem, symm)
    _check(symm, problem, tables, out, config)
    args = _arguments(symm, problem, tables, config) | {
        "out": out,
        "all_tables": problem.all_tables,
        "rank": symm.rank,
        "first_dest": plan.first_destination(config.order, symm.rank, problem.world_size),
        "first_table": problem.first_table(symm.rank),
    }
    if config.transport == "rdma":
        kernel, more = rdma.linked(rdma_kernel, symm), _rdma_arguments(symm, problem, config)
    else:
        require_symmetric(symm, "out", out)
        kernel, more = fused_kernel, _peer_arguments(symm, problem, config)
    waits = problem.world_size > 1
    symm.launch(kernel, grid_of(problem, config), args | more, num_warps=config.num_warps, waits=waits)
    return out[: problem.part(symm.rank)[1]]


def _peer_arguments(symm: SymmetricMemory, problem: Problem, config: Config) -> dict[str, Any]:
    space = workspace(symm, "embedding_all_to_all")
    staged = config.transport == "staged"
    scratch = problem.batch * problem.tables[symm.rank] * problem.dim if staged else 1
    return {
        "stage": space.stage_of(scratch, problem.dtype),
        "ready": space.ready,
        "entered": space.entered,
        "word": space.word,
        "bases": symm.bases,
        "MAX_WGS": space.ready.shape[1],
        "STAGED": staged,
        "INTERLEAVED": config.order == "interleaved",
    }


def _rdma_arguments(symm: SymmetricMemory, problem: Problem, config: Config) -> dict[str, Any]:
    vector = problem.dim * problem.dtype.itemsize
    space = rdma_workspace(
        symm,
        "embedding_all_to_all",
        max_slices=-(-problem.batch_max // (config.block_b * config.slice_blocks)),
        stage_bytes=problem.batch * max(problem.tables) * vector,
        landing_bytes=problem.batch_max * problem.all_tables * vector,
    )
    first_tables = symm.state.setdefault("embedding_all_to_all.first_tables", {})
    if problem.tables not in first_tables:
        starts = [problem.first_table(rank) for rank in range(problem.world_size + 1)]
        first_tables[problem.tables] = torch.tensor(starts, dtype=torch.int32, device=symm.device)
    return {
        "stage": space.stage.view(problem.dtype),
        "landing": space.landing.view(problem.dtype),
        "first_tables": first_tables[problem.tables],
        "slice_done": space.slice_done,
        "slice_ready": space.slice_ready,
        "entered": space.entered,
        "word": space.word,
        "batch_max": problem.batch_max,
        "max_slices": space.slice_ready.shape[1],
        "SLICE_BLOCKS": config.slice_blocks,
        "FENCED": config.fenced,
    }


def compute(
    symm: SymmetricMemory,
    problem: Problem,
    tables: Tables,
    out: torch.Tensor,
    config: Config | None = None,
    dest: int | None = None,
) -> torch.Tensor:
    """The compute half of `bulk`: this rank's tables pooled into out [bags, tables of this rank, dim].

    `dest` limits it to the bags of one rank; None takes the global batch.
    """
    config = config or default_config(problem, symm, "compute")
    first, bags = (0, problem.batch) if dest is None else problem.part(dest)
    check_tensor("out", out, (bags, problem.tables[symm.rank], problem.dim), problem.dtype)
    args = _arguments(symm, problem, tables, config) | {"out": out, "low": first, "high": first + bags}
    grid = min(config.grid, max(1, -(-bags // config.block_b)) * problem.tables[symm.rank])
    symm.launch(compute_kernel, grid, args, num_warps=config.num_warps, waits=False)
    return out


def bulk(
    symm: SymmetricMemory, problem: Problem, tables: Tables, out: torch.Tensor, config: Config | None = None
) -> torch.Tensor:
    """The baseline: the compute kernel, the library's all-to-all, the permutation; `out` as in `fused`, but any tensor."""
    config = config or default_config(problem, symm)
    _check(symm, problem, tables, out, config)
    mine, bags = problem.tables[symm.rank], problem.part(symm.rank)[1]
    sent = torch.empty((problem.batch, mine, problem.dim), dtype=problem.dtype, device=symm.device)
    compute(symm, problem, tables, sent, config)
    received = torch.empty((problem.all_tables * bags, problem.dim), dtype=problem.dtype, device=symm.device)
    splits = [problem.part(dest)[1] * mine for dest in range(problem.world_size)]
    collectives.all_to_all(
        symm, received, sent.view(-1, problem.dim), [count * bags for count in problem.tables], splits
    )
    result = out[:bags]
    parts = received.split([count * bags for count in problem.tables])
    shaped = [p.view(bags, count, problem.dim) for p, count in zip(parts, problem.tables, strict=True)]
    torch.cat(shaped, dim=1, out=result)
    return result


def decomposed(
    symm: SymmetricMemory, problem: Problem, tables: Tables, out: torch.Tensor, config: Config | None = None
) -> torch.Tensor:
    """The same by decomposition (`kernels/decomposed.py`): one destination's bags after the other; arguments as `bulk`."""
    config = config or default_config(problem, symm, "compute")
    _check(symm, problem, tables, out, config)
    result = out[: problem.part(symm.rank)[1]]

    def empty(bags: int, owner: int) -> torch.Tensor:
        return torch.empty((bags, problem.tables[owner], problem.dim), dtype=problem.dtype, device=symm.device)

    def place(owner: int, received: torch.Tensor) -> None:
        result[:, problem.first_table(owner) : problem.first_table(owner + 1)] = received

    decomposition.all_to_all(
        symm,
        chunk=lambda dest: compute(symm, problem, tables, empty(problem.part(dest)[1], symm.rank), config, dest),
        receive=lambda source: empty(len(result), source),
        place=place,
    )
    return result


def reference(problem: Problem, tables: list[Tables], rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain torch in float64 from all ranks' operands: what `rank` ends with, and the sum of absolute values behind it."""
    first, bags = problem.part(rank)
    shape = (bags, problem.all_tables, problem.dim)
    exact, magnitude = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for owner, theirs in enumerate(tables):
        offsets, starts = theirs.offsets.tolist(), theirs.table_offsets.tolist()
        for table in range(problem.tables[owner]):
            for bag in range(bags):
                low, high = offsets[table * problem.batch + first + bag :][:2]
                values = theirs.weight[starts[table] + theirs.indices[low:high].long()].double()
                if theirs.sample_weights is not None:
                    values = values * theirs.sample_weights[low:high].double()[:, None]
                count = max(1, high - low) if problem.pooling_mode == "mean" else 1
                place = (bag, problem.first_table(owner) + table)
                exact[place] = values.sum(0) / count
                magnitude[place] = values.abs().sum(0) / count
    return exact, magnitude


def error_bound(problem: Problem, exact: torch.Tensor, magnitude: torch.Tensor, longest: int) -> torch.Tensor:
    """Largest allowed absolute error of `fused` per element, for bags of up to `longest` indices."""
    operations = (2 if problem.weighted else 1) * longest + (problem.pooling_mode == "mean")
    return sum_bound(exact, magnitude, operations, problem.dtype)
