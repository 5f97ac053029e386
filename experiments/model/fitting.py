"""Fits a machine's constants to measured times: which constants, in which order, and by what measure.

Three stages, each on the rows that its constants alone explain: compute kernels, then bulk (adds the library), then fused
(adds links and signals). Least squares of log(predicted / measured) over the logarithms of the constants, so that 2 us and
2 ms count alike and no constant can turn negative.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from . import operations, strategies
from .machine import US, Machine

MAX_EVALUATIONS = 12  # of a stage's Jacobian; each costs a simulation a row and constant
STEP = 0.03  # relative step of the finite differences: simulated times are piecewise smooth
LOWEST_SYNC = 1e-3 * US


@dataclass(frozen=True)
class Point:
    """One measured median. `case`: the row of the case list that it belongs to."""

    operator: str
    case: dict
    arm: str
    strategy: str  # "compute", "bulk", "fused" or another of strategies.STRATEGIES
    world_size: int
    measured: float  # seconds


@dataclass(frozen=True)
class Constant:
    """A number that may be fitted: name, unit, range as a factor of the profile's value (or absolute where it starts at 0)."""

    name: str
    unit: str
    read: Callable[[Machine], float]
    write: Callable[[Machine, float], Machine]
    low: float
    high: float


def _field(name: str, unit: str, low: float = 0.2, high: float = 5.0) -> Constant:
    return Constant(name, unit, lambda m: getattr(m, name), lambda m, v: replace(m, **{name: v}), low, high)


def _kernel(operator: str, field: str, unit: str = "1", low: float = 0.5, high: float = 1.5) -> Constant:
    return Constant(
        f"{operator}.{field}",
        unit,
        lambda m: getattr(m.kernels[operator], field),
        lambda m, v: m.with_kernel(operator, **{field: v}),
        low,
        high,
    )


def stages(operators: set[str]) -> dict[str, list[Constant]]:
    """Strategy whose rows a stage is fitted to -> its constants."""
    binding = {
        "gemv_all_reduce": "memory_efficiency",
        "embedding_all_to_all": "memory_efficiency",
        "gemm_all_to_all": "math_efficiency",
    }
    compute = [_field("launch", "s")]
    for operator in sorted(operators):
        compute += [_kernel(operator, binding[operator]), _kernel(operator, "wg_overhead", "s", 0.05, 10.0)]
    bulk = []
    if "gemv_all_reduce" in operators:
        bulk += [_field("alpha_all_reduce", "s"), _field("efficiency_all_reduce", "1", 0.3, 1.5)]
    if operators - {"gemv_all_reduce"}:
        bulk += [_field("alpha_all_to_all", "s"), _field("efficiency_all_to_all", "1", 0.3, 1.5)]
    fused = [
        _field("sync_cost", "s"),
        _field("flag", "s", 0.5, 2.0),
        _field("link", "B/s", 0.5, 1.3),
        _field("store_rate", "B/s"),
    ]
    return {"compute": compute, "bulk": bulk, "fused": fused}


def predict(machine: Machine, point: Point) -> float:
    """Seconds that the model gives for a point, on as many of the machine's GPUs as it was measured on."""
    machine = replace(machine, gpus=point.world_size)
    operation = operations.build(point.operator, point.case, machine, fused=point.strategy == "fused")
    return strategies.time(point.strategy, machine, operation)


def fit_stage(machine: Machine, constants: Sequence[Constant], points: Sequence[Point]) -> Machine:
    """The machine with `constants` fitted to `points`; unchanged when there are too few points to hold them."""
    if len(points) < 2:
        return machine
    start = np.array([max(c.read(machine), LOWEST_SYNC) for c in constants])
    low = np.array([c.low for c in constants])
    high = np.array([c.high for c in constants])
    # A constant that starts at nothing (sync_cost) may reach 20 us.
    high = np.where(start <= LOWEST_SYNC, 20 * US / LOWEST_SYNC, high)

    def apply(logs: np.ndarray) -> Machine:
        fitted = machine
        for constant, value in zip(constants, start * np.exp(logs), strict=True):
            fitted = constant.write(fitted, float(value))
        return fitted

    def residuals(logs: np.ndarray) -> list[float]:
        fitted = apply(logs)
        return [math.log(predict(fitted, p) / p.measured) for p in points]

    found = least_squares(
        residuals,
        np.where(start <= LOWEST_SYNC, math.log(100.0), 0.0),
        bounds=(np.log(low), np.log(high)),
        diff_step=STEP,
        max_nfev=MAX_EVALUATIONS,
        x_scale=0.1,
    )
    return apply(found.x)


def fit(machine: Machine, points: Sequence[Point]) -> Machine:
    """All stages in turn. Rows of other strategies are not fitted to: they test the model."""
    for strategy, constants in stages({p.operator for p in points}).items():
        machine = fit_stage(machine, constants, [p for p in points if p.strategy == strategy])
    return machine
