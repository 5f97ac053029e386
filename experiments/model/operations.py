"""Cases to `Operation`s: the operators' own problems and plans at the grid that a machine holds."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import torch

from kernels import embedding_problem, gemm_problem, gemv_all_reduce

from .errors import ModelError, require
from .machine import Machine
from .plans import Operation

OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
ONE_SHOT_BYTES = 64 * 1024  # partial vectors up to this size go one-shot


class _Device:
    """The little that an operator's `default_config` asks of a GPU's symmetric memory."""

    device = torch.device("cuda")

    def __init__(self, grid: int) -> None:
        self._grid = grid

    def max_resident(self, num_warps: int) -> int:
        """Twice the wanted grid: the defaults take half of what fits."""
        return 2 * self._grid


def _gemv(case: Mapping[str, object], world: int, grid: int, order: str) -> Operation:
    dtype = str(case["dtype"])
    problem = gemv_all_reduce.Problem(int(case["m"]), int(case["k"]), int(case["batch"]), getattr(torch, dtype), world)
    partial = problem.m * problem.batch * 4
    algorithm = "one_shot" if partial <= ONE_SHOT_BYTES else "two_phase"
    config = replace(
        gemv_all_reduce.default_config(problem, _Device(grid)), algorithm=algorithm, grid=grid, order=order
    )
    return Operation(
        operator="gemv_all_reduce",
        plans=tuple(gemv_all_reduce.make_plan(problem, config, rank) for rank in range(world)),
        protocol=algorithm,
        collective="all_reduce",
        collective_bytes=problem.m * problem.batch * ITEMSIZE[dtype],
        reduce_bytes=ITEMSIZE[dtype] / 4,
    )


def _embedding(case: Mapping[str, object], world: int, grid: int, order: str) -> Operation:
    batch, tables, dim, pooling = (int(case[k]) for k in ("global_batch", "tables", "dim", "pooling"))
    dtype = str(case["dtype"])
    problem = embedding_problem.Problem(batch, tables, dim, getattr(torch, dtype), world, index_dtype=torch.int32)
    config = replace(embedding_problem.default_config(problem, _Device(grid)), grid=grid, order=order)
    pooled = batch * tables * dim * ITEMSIZE[dtype]
    return Operation(
        operator="embedding_all_to_all",
        plans=tuple(embedding_problem.make_plan(problem, config, rank, pooling) for rank in range(world)),
        protocol="scatter",
        collective="all_to_all",
        collective_bytes=pooled,
        rearranged=pooled,
    )


def _gemm(case: Mapping[str, object], world: int, grid: int, order: str) -> Operation:
    rows, n, k, experts = (int(case[key]) for key in ("m", "n", "k", "experts"))
    dtype = str(case["dtype"])
    problem = gemm_problem.Problem(rows, rows, n, k, experts, getattr(torch, dtype), world)
    config = replace(gemm_problem.default_config(problem, _Device(grid)), grid=grid, order=order)
    plans = tuple(gemm_problem.make_plan(problem, config, rank) for rank in range(world))
    size = ITEMSIZE[dtype]
    # Memory serves the rows once and an expert's weight once for each destination; caches serve what tiles share.
    unique = (rows * k + world * experts * n * k) * size
    return Operation(
        operator="gemm_all_to_all",
        plans=plans,
        protocol="scatter",
        collective="all_to_all",
        collective_bytes=rows * n * size,
        read_fraction=min(1.0, unique / float(plans[0].bytes_read.sum())),
        tile_flops=2.0 * config.block_m * config.block_n * k,
    )


BUILDERS = {"gemv_all_reduce": _gemv, "embedding_all_to_all": _embedding, "gemm_all_to_all": _gemm}


@lru_cache(maxsize=64)
def _build(operator: str, case: tuple[tuple[str, object], ...], world: int, grid: int, order: str) -> Operation:
    try:
        return BUILDERS[operator](dict(case), world, grid, order)
    except KeyError as missing:
        raise ModelError(f"case {dict(case).get('case', '?')} of {operator}: column {missing} is missing") from None


def build(
    operator: str, case: Mapping[str, object], machine: Machine, fused: bool, order: str = "remote_first"
) -> Operation:
    """The operation of one case on every GPU of `machine`.

    Args:
        operator: one of `OPERATORS`.
        case: a row of its case list: `case`, `dtype` and the operator's own columns, as in `experiments/cases`. Ragged bags are
            taken at their mean length, uneven splits as even ones.
        machine: gives the number of ranks and the grid.
        fused: the fused kernel's grid (registers) or the compute kernel's.
        order: order of the plan.
    """
    require(operator in OPERATORS, "operator", operator, ", ".join(OPERATORS))
    key = tuple(sorted((k, v) for k, v in case.items() if k != "machine"))
    return _build(operator, key, machine.gpus, machine.grid(operator, fused), order)


def with_occupancy(machine: Machine, operator: str, occupancy: float, fused: bool) -> Machine:
    """The machine with the operator's kernel at that part of a CU's wave slots (at least one work-group a CU)."""
    use = machine.kernels[operator]
    wgs = max(1, int(occupancy * machine.wave_slots + 1e-9) // use.waves_per_wg)
    return machine.with_kernel(operator, **{"fused_wgs_per_cu" if fused else "wgs_per_cu": wgs})
