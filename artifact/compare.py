"""Measured arms of an operator, case by case: the fused arm against the vendor's library and against the best baseline."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from . import stats

USABLE = ("ok", "suspect")


@dataclass(frozen=True)
class Pair:
    """One case of one operator: fused against one baseline.

    Attributes:
        fused, base: medians with intervals, microseconds. ratio: fused / base with its interval; paired where the samples allow.
        limit_us: what the machine could do; NaN when not recorded.
    """

    case: str
    fused_arm: str
    base_arm: str
    fused: stats.Interval
    base: stats.Interval
    ratio: stats.Interval
    limit_us: float

    @property
    def faster(self) -> bool:
        return bool(self.ratio.high < 1)

    @property
    def slower(self) -> bool:
        return bool(self.ratio.low > 1)

    @property
    def reduction(self) -> float:
        return stats.reduction_percent(self.ratio.value)


def is_vendor(arm: str) -> bool:
    """A library's (or torch's) compute kernel followed by NCCL or RCCL: what the paper compares with."""
    compute, _, collective = arm.partition("+")
    return compute != "own" and collective.split("+")[0] in ("nccl", "rccl")


def usable(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of CUDA-graph replays on GPUs that have a time."""
    keep = (
        (frame["backend"] == "gpu")
        & (frame["mode"] == "graph")
        & frame["status"].isin(USABLE)
        & frame["time_us"].notna()
    )
    return frame[keep]


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, interval and sample count of every arm and case: columns of the group, time_us, low_us, high_us, samples, limit_us."""
    keys = ["machine", "world_size", "operator", "case", "dtype", "strategy", "arm", "face"]
    found = []
    for key, group in usable(frame).groupby(keys, sort=False):
        interval = stats.median(group["time_us"].to_numpy())
        found.append(
            {
                **dict(zip(keys, key, strict=True)),
                "time_us": interval.value,
                "low_us": interval.low,
                "high_us": interval.high,
                "samples": interval.samples,
                "limit_us": float(group["limit_us"].median()) if group["limit_us"].notna().any() else np.nan,
            }
        )
    return pd.DataFrame(found, columns=[*keys, "time_us", "low_us", "high_us", "samples", "limit_us"])


def ratio_of(fused: pd.DataFrame, base: pd.DataFrame) -> stats.Interval:
    """Paired ratio over the samples (rounds) that both arms have."""
    left, right = fused.set_index("sample")["time_us"], base.set_index("sample")["time_us"]
    both = left.index.intersection(right.index)
    return stats.ratio(left.loc[both].to_numpy(), right.loc[both].to_numpy())


def pairs(frame: pd.DataFrame, operator: str, vendor: bool) -> list[Pair]:
    """Fused (face `out`, fastest arm) against the fastest vendor baseline, or against the fastest of all baselines, per case."""
    rows = usable(frame)
    rows = rows[rows["operator"] == operator]
    found = []
    for case, group in rows.groupby("case", sort=False):
        middle = group.groupby(["arm", "strategy", "face"], sort=False)["time_us"].median().reset_index()
        fused = middle[(middle["strategy"] == "fused") & (middle["face"] == "out")]
        base = middle[middle["strategy"].isin(("bulk", "push", "decomposed"))]
        if vendor:
            base = base[base["arm"].map(is_vendor)]
        if fused.empty or base.empty:
            continue
        arm = fused.loc[fused["time_us"].idxmin(), "arm"]
        other = base.loc[base["time_us"].idxmin(), "arm"]
        a, b = group[group["arm"] == arm], group[group["arm"] == other]
        if not set(a["sample"]) & set(b["sample"]):
            continue
        limit = a["limit_us"].median() if a["limit_us"].notna().any() else np.nan
        found.append(
            Pair(
                str(case),
                str(arm),
                str(other),
                stats.median(a["time_us"].to_numpy()),
                stats.median(b["time_us"].to_numpy()),
                ratio_of(a, b),
                float(limit),
            )
        )
    return found
