"""Cases to `Operation`s: the operators' own problems and plans at the grid that a machine holds."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from types import ModuleType
from typing import Any

import torch

from kernels import embedding_problem, gemm_problem, gemv_all_reduce, tuning

from .errors import ModelError, require
from .machine import Machine
from .plans import Operation

OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
INDEX_BYTES = 4
ONE_SHOT_BYTES = 64 * 1024  # partial vectors up to this size go one-shot where nothing was tuned


@dataclass(frozen=True)
class Target:
    """What a plan is made for: a machine, the fused or the compute kernel, an order."""

    machine: Machine
    fused: bool
    order: str


class _Device:
    """The little that an operator's `default_config` asks of symmetric memory, for a GPU that is not there."""

    device = torch.device("cuda")

    def __init__(self, machine: Machine) -> None:
        self.device_name = machine.gpu
        self.state: dict[str, object] = {}
        self._machine = machine

    def max_resident(self, num_warps: int) -> int:
        """By wave slots, as on a GPU that is there."""
        return self._machine.compute_units * (self._machine.wave_slots // num_warps)


def _configured(module: ModuleType, operator: str, problem: Any, target: Target, **untuned: object) -> Any:
    """The operator's own configuration: the tuned one of this GPU, else its default with `untuned` and the profile's grid."""
    machine, role = target.machine, "fused" if target.fused else "compute"
    config = module.default_config(problem, _Device(machine), role)
    if tuning.nearest(machine.gpu, operator, role, module.tuning_key(problem)) is None:
        config = replace(config, grid=machine.grid(operator, target.fused), **untuned)
    return replace(config, order=target.order)


def touched(row: int, sector: int) -> float:
    """Bytes of whole sectors that a row of a packed table touches, on average over the rows."""
    return row + sector - gcd(row, sector)


def _gemv(case: Mapping[str, Any], target: Target) -> Operation:
    dtype, world = str(case["dtype"]), target.machine.gpus
    problem = gemv_all_reduce.Problem(int(case["m"]), int(case["k"]), int(case["batch"]), getattr(torch, dtype), world)
    partial = problem.m * problem.batch * 4
    by_size = "one_shot" if partial <= ONE_SHOT_BYTES else "two_phase"
    config = _configured(gemv_all_reduce, "gemv_all_reduce", problem, target, algorithm=by_size)
    algorithm = str(case.get("algorithm") or (config.algorithm if target.fused else by_size))
    config = replace(config, algorithm=algorithm)
    return Operation(
        operator="gemv_all_reduce",
        plans=tuple(gemv_all_reduce.make_plan(problem, config, rank) for rank in range(world)),
        protocol=algorithm,
        collective="all_reduce",
        collective_bytes=problem.m * problem.batch * ITEMSIZE[dtype],
        waves=config.num_warps,
        in_flight=config.block_m * config.block_k * ITEMSIZE[dtype] * max(config.num_stages, 1),
        reduce_bytes=ITEMSIZE[dtype] / 4,
    )


def _embedding(case: Mapping[str, Any], target: Target) -> Operation:
    batch, tables, dim, pooling = (int(case[k]) for k in ("global_batch", "tables", "dim", "pooling"))
    dtype, world = str(case["dtype"]), target.machine.gpus
    problem = embedding_problem.Problem(batch, tables, dim, getattr(torch, dtype), world, index_dtype=torch.int32)
    config = _configured(embedding_problem, "embedding_all_to_all", problem, target)
    row = dim * ITEMSIZE[dtype]
    pooled = batch * tables * row
    return Operation(
        operator="embedding_all_to_all",
        plans=tuple(embedding_problem.make_plan(problem, config, rank, pooling) for rank in range(world)),
        protocol="scatter",
        collective="all_to_all",
        collective_bytes=pooled,
        waves=config.num_warps,
        read_fraction=(touched(row, int(target.machine.sector)) + INDEX_BYTES) / (row + INDEX_BYTES),
        rearranged=pooled,
    )


def _gemm(case: Mapping[str, Any], target: Target) -> Operation:
    rows, n, k, experts = (int(case[key]) for key in ("m", "n", "k", "experts"))
    dtype, world = str(case["dtype"]), target.machine.gpus
    problem = gemm_problem.Problem(rows, rows, n, k, experts, getattr(torch, dtype), world)
    config = _configured(gemm_problem, "gemm_all_to_all", problem, target)
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
        waves=config.num_warps,
        in_flight=(config.block_m + config.block_n) * config.block_k * size * max(config.num_stages, 1),
        read_fraction=min(1.0, unique / float(plans[0].bytes_read.sum())),
        tile_flops=2.0 * config.block_m * config.block_n * k,
    )


BUILDERS = {"gemv_all_reduce": _gemv, "embedding_all_to_all": _embedding, "gemm_all_to_all": _gemm}


_built: OrderedDict[tuple, Operation] = (
    OrderedDict()
)  # plans are costly, and asked for again by every strategy and corner
KEEP = 64


def _build(operator: str, case: Mapping[str, object], target: Target) -> Operation:
    try:
        return BUILDERS[operator](case, target)
    except KeyError as missing:
        raise ModelError(f"case {dict(case).get('case', '?')} of {operator}: column {missing} is missing") from None


def build(
    operator: str, case: Mapping[str, object], machine: Machine, fused: bool, order: str = "remote_first"
) -> Operation:
    """The operation of one case on every GPU of `machine`.

    Args:
        operator: one of `OPERATORS`.
        case: a row of its case list: `case`, `dtype` and the operator's own columns, as in `experiments/cases`. Ragged bags are
            taken at their mean length, uneven splits as even ones. `algorithm` (GEMV) overrides the choice by size.
        machine: gives the number of ranks and the grid.
        fused: the fused kernel's grid (registers) or the compute kernel's.
        order: order of the plan.
    """
    require(operator in OPERATORS, "operator", operator, ", ".join(OPERATORS))
    grid = machine.grid(operator, fused)
    # Everything of a machine that a plan depends on.
    key = (operator, tuple(sorted(case.items())), machine.gpu, machine.gpus, grid, fused, order)
    if key not in _built:
        _built[key] = _build(operator, case, Target(machine, fused, order))
        if len(_built) > KEEP:
            _built.popitem(last=False)
    return _built[key]


def with_occupancy(machine: Machine, operator: str, occupancy: float, fused: bool) -> Machine:
    """The machine with the operator's kernel at that part of a CU's wave slots (at least one work-group a CU)."""
    use = machine.kernels[operator]
    wgs = max(1, int(occupancy * machine.wave_slots + 1e-9) // use.waves_per_wg)
    return machine.with_kernel(operator, **{"fused_wgs_per_cu" if fused else "wgs_per_cu": wgs})
