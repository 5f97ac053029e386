"""Predicted against measured: fit on half of the cases, judge on the other half, and say plainly what has no measurements.

Reads tidy timing rows (`experiments/reference/<machine>/*.csv`, schema of the artifact's results); writes one row a point,
one a fitted constant, and one a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from .. import cases as case_lists
from ..errors import ExperimentError
from . import fitting, profile
from . import machine as machines
from .errors import ModelError, require
from .fitting import Point
from .machine import US, Machine
from .operations import OPERATORS

# What a model must reach on the half that it was not fitted to.
MEAN_ERROR = 12.0  # percent
POINT_ERROR = 25.0  # percent, for 95 % of the points
POINT_SHARE = 0.95
SIGN_FROM = 5.0  # percent: fused against bulk must have the measured sign where they differ by more

# Measured arm -> (strategy of the model, what the arm adds to its case). Arms with a library's compute kernel, with other
# collectives, with a copy at the end or without the permutation that makes the result whole are not modelled.
ARMS: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
    "gemv_all_reduce": {
        "own": ("compute", {}),
        "own+nccl": ("bulk", {}),
        "decomposed": ("decomposed", {}),
        "fused.two_phase": ("fused", {"algorithm": "two_phase"}),
        "fused.one_shot": ("fused", {"algorithm": "one_shot"}),
    },
    "embedding_all_to_all": {
        "own": ("compute", {}),
        "own+nccl+permute": ("bulk", {}),
        "decomposed": ("decomposed", {}),
        "fused.peer": ("fused", {}),
    },
    "gemm_all_to_all": {
        "own": ("compute", {}),
        "own+nccl": ("bulk", {}),
        "decomposed": ("decomposed", {}),
        "fused.peer": ("fused", {}),
    },
}
COLUMNS = ("operator", "case", "arm", "strategy", "mode", "backend", "world_size", "time_us", "status")
HALVES = (("compute", "h200-x1"), ("communication", "h200-x2"), ("communication", "h200-x4"))
MISSING = {
    "h200-x1": "not validated: no single-GPU measurements recorded",
    "h200-x2": "not validated: no two-GPU measurements recorded",
    "h200-x4": "not validated: no four-GPU measurements recorded",
}


@dataclass(frozen=True)
class Judgement:
    """Errors on the judged half. Percentages; `sign_right` of `sign_cases` fused-bulk pairs that differ enough."""

    points: int
    mean_error: float
    within: float
    sign_right: int
    sign_cases: int

    @property
    def passed(self) -> bool:
        """Whether all targets are met."""
        return (
            self.points > 0
            and self.mean_error <= MEAN_ERROR
            and self.within >= POINT_SHARE
            and self.sign_right == self.sign_cases
        )


def read_points(folder: Path) -> list[Point]:
    """Medians of the measured rows in a machine's folder that the model can predict: CUDA graphs, status ok, arms in `ARMS`."""
    known = {operator: {c["case"]: c for c in case_lists.timing(operator)} for operator in OPERATORS}
    frames = []
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path)
        if not {"arm", "time_us"} <= set(frame.columns) or "event" in frame.columns:
            continue  # verification rows; the events within a kernel
        missing = [c for c in COLUMNS if c not in frame.columns]
        require(
            not missing, f"{path.parent.name}/{path.name}: columns", f"without {', '.join(missing)}", ", ".join(COLUMNS)
        )
        frames.append(frame)
    if not frames:
        return []
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[(rows["backend"] == "gpu") & (rows["mode"] == "graph") & (rows["status"] == "ok")]
    samples: dict[tuple[str, str, str, int], list[float]] = {}
    for row in rows.itertuples():
        operator, case, arm = str(row.operator), str(row.case), str(row.arm)
        if arm in ARMS.get(operator, {}) and case in known[operator]:
            samples.setdefault((operator, case, arm, int(row.world_size)), []).append(float(row.time_us))
    order = {(operator, case): i for operator in OPERATORS for i, case in enumerate(known[operator])}
    points = []
    for operator, case, arm, world in sorted(samples, key=lambda k: (k[0], order[k[0], k[1]], k[3], k[2])):
        strategy, extra = ARMS[operator][arm]
        median = float(np.median(samples[operator, case, arm, world]))
        points.append(Point(operator, {**known[operator][case], **extra}, arm, strategy, world, median * US))
    return points


def split(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """(fit, judge): every second case of each operator, by the order of the case lists; all strategies of a case together."""
    fit: list[Point] = []
    judge: list[Point] = []
    for operator in sorted({p.operator for p in points}):
        cases = list(dict.fromkeys(p.case["case"] for p in points if p.operator == operator))
        even = set(cases[::2])
        for p in points:
            if p.operator == operator:
                (fit if p.case["case"] in even else judge).append(p)
    return fit, judge


def judge(machine: Machine, points: Sequence[Point]) -> tuple[Judgement, list[float]]:
    """Errors of the model on points; (judgement, predicted seconds of each point)."""
    predicted = [fitting.predict(machine, p) for p in points]
    if not points:
        return Judgement(0, float("nan"), 0.0, 0, 0), []
    errors = [100 * abs(t / p.measured - 1) for p, t in zip(points, predicted, strict=True)]
    bulk = {
        (p.operator, p.case["case"], p.world_size): (p.measured, t)
        for p, t in zip(points, predicted, strict=True)
        if p.strategy == "bulk"
    }
    right = counted = 0
    for p, t in zip(points, predicted, strict=True):
        measured, modelled = bulk.get((p.operator, p.case["case"], p.world_size), (0.0, 0.0))
        if p.strategy == "fused" and measured and abs(p.measured - measured) / measured * 100 > SIGN_FROM:
            counted += 1
            right += (p.measured < measured) == (t < modelled)
    within = sum(e <= POINT_ERROR for e in errors) / len(errors)
    return Judgement(len(points), float(np.mean(errors)), within, right, counted), predicted


def verdict_row(half: str, machine: str, result: Judgement | None) -> dict[str, object]:
    """One row of validation_summary."""
    row: dict[str, object] = {"backend": "model", "half": half, "machine": machine}
    if result is None or result.points == 0:
        return {
            **row,
            "points": 0,
            "status": "missing",
            "verdict": MISSING.get(machine, "not validated: no measurements recorded"),
        }
    text = (
        f"mean error {result.mean_error:.1f} % (target {MEAN_ERROR:g}), {100 * result.within:.0f} % of points within {POINT_ERROR:g} %"
        f" (target {100 * POINT_SHARE:g})"
    )
    if result.sign_cases:
        text += f", sign right in {result.sign_right} of {result.sign_cases}"
    what = " (compute kernels)" if half == "compute" else ""
    return {
        **row,
        "points": result.points,
        "mean_error_percent": result.mean_error,
        "within_25_percent": 100 * result.within,
        "sign_right": result.sign_right,
        "sign_cases": result.sign_cases,
        "status": "ok" if result.passed else "failed",
        "verdict": ("validated" if result.passed else "not validated") + f"{what}: {text}",
    }


def validate(machine: Machine, points: Sequence[Point]) -> tuple[Judgement, list[dict], list[dict]]:
    """Fit and judge one machine; (judgement on the held-out half, point rows, constant rows)."""
    fit_half, judge_half = split(points)
    fitted = fitting.fit(machine, fit_half)
    result, predicted_judge = judge(fitted, judge_half)
    _, predicted_fit = judge(fitted, fit_half)
    point_rows = []
    for half, chosen, predicted in (("fit", fit_half, predicted_fit), ("judge", judge_half, predicted_judge)):
        for p, t in zip(chosen, predicted, strict=True):
            point_rows.append(
                {
                    "backend": "model",
                    "machine": machine.name,
                    "operator": p.operator,
                    "case": p.case["case"],
                    "arm": p.arm,
                    "strategy": p.strategy,
                    "world_size": p.world_size,
                    "dtype": p.case["dtype"],
                    "half": half,
                    "measured_us": p.measured / US,
                    "predicted_us": t / US,
                    "error_percent": 100 * (t / p.measured - 1),
                }
            )
    constants = [
        {
            "machine": machine.name,
            "constant": c.name,
            "unit": c.unit,
            "profile_value": c.read(machine),
            "fitted_value": c.read(fitted),
        }
        for stage, found in fitting.stages({p.operator for p in points}).items()
        if any(p.strategy == stage for p in fit_half)
        for c in found
    ]
    return result, point_rows, constants


def run(reference: Path) -> tuple[dict[str, list[dict]], str]:
    """Rows of the files `validation`, `validation_constants`, `validation_summary`, and one line that says how it stands."""
    points: list[dict] = []
    constants: list[dict] = []
    summary: list[dict] = []
    for half, name in HALVES:
        try:
            found = read_points(reference / name) if (reference / name).is_dir() else []
        except ExperimentError as error:
            raise ModelError(str(error)) from None
        wanted = [p for p in found if (p.strategy == "compute") == (half == "compute") or half == "communication"]
        if not wanted:
            summary.append(verdict_row(half, name, None))
            continue
        result, point_rows, constant_rows = validate(machines.from_profile(profile.load(name)), wanted)
        points += point_rows
        constants += constant_rows
        summary.append(verdict_row(half, name, result))
    message = "; ".join(f"{row['machine']}: {row['verdict']}" for row in summary)
    return {"validation": points, "validation_constants": constants, "validation_summary": summary}, message
