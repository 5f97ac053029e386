"""Measured times of one operator, case by case: every series relative to what the machine could do, absolute limit beside it."""

import pandas as pd
from matplotlib.figure import Figure

from artifact import compare

from . import style
from .inputs import Inputs

SERIES = {
    "fused": "fused, zero-copy",
    "own": "own compute alone",
    "bulk_own": "own compute + NCCL",
    "library": "library compute + NCCL",
    "library_alone": "library compute alone",
    "other": "fastest other arm",
}
_LOOK = {
    "fused": ("fused", "fused"), "own": ("own", "own"), "bulk_own": ("bulk", "bulk"), "library": ("library", "library"),
    "library_alone": ("library", "library"), "other": ("other", "other"),
}  # fmt: skip


def series_of(strategy: str, arm: str, face: str) -> str:
    """Which series an arm belongs to; "" for none."""
    if strategy == "fused":
        return "fused" if face == "out" else ""
    if strategy == "compute":
        return "own" if arm == "own" else "library_alone"
    if compare.is_vendor(arm):
        return "library"
    return "bulk_own" if arm == "own+nccl" else "other"


def rows(inputs: Inputs, operator: str) -> pd.DataFrame:
    """One row a machine, case and series: the fastest arm of the series with its interval; `limit_us` as recorded."""
    timing = inputs.timing if inputs.timing is not None else pd.DataFrame()
    columns = [
        "backend",
        "machine",
        "world_size",
        "case",
        "series",
        "arm",
        "time_us",
        "low_us",
        "high_us",
        "samples",
        "limit_us",
    ]
    if timing.empty:
        return pd.DataFrame(columns=columns)
    found = compare.medians(timing[timing["operator"] == operator])
    found["series"] = [
        series_of(s, a, f) for s, a, f in zip(found["strategy"], found["arm"], found["face"], strict=True)
    ]
    found = found[found["series"] != ""]
    # One machine a figure: the one with the most GPUs, since only several GPUs communicate.
    found = found[found["world_size"] == found["world_size"].max()]
    best = found.loc[found.groupby(["machine", "case", "series"], sort=False)["time_us"].idxmin()].assign(backend="gpu")
    order = {case: n for n, case in enumerate(dict.fromkeys(timing["case"]))}
    best = best.assign(_o=best["case"].map(order)).sort_values(["machine", "_o"], kind="stable")
    if best["world_size"].max() > 1:
        best = best[best["series"] != "library_alone"]
    return best[columns].reset_index(drop=True)


def draw(rows: pd.DataFrame, operator: str) -> Figure:
    if rows.empty:
        made, (axes,) = style.figure(1.2)
        style.nothing(axes, f"{style.operator_title(operator)}: no measured rows")
        return made
    cases = list(dict.fromkeys(rows["case"]))
    made, (axes,) = style.figure(max(2.0, 0.9 + 0.15 * len(cases)))
    limits = rows.groupby("case", sort=False)["limit_us"].first()
    known = bool(limits.notna().all())  # not without the rates of the same run: then times stand by themselves
    height = {case: len(cases) - n for n, case in enumerate(cases)}
    for name in style.in_order(rows["series"], SERIES):
        part = rows[rows["series"] == name]
        colour, marker = _LOOK[name]
        limit = part["case"].map(limits) if known else 1.0
        ratio = part["time_us"] / limit
        spread = [ratio - part["low_us"] / limit, part["high_us"] / limit - ratio]
        axes.errorbar(
            ratio, part["case"].map(height), xerr=[s.clip(lower=0).fillna(0) for s in spread], fmt=style.MARKERS[marker],
            color=style.COLOURS[colour], label=SERIES[name], linestyle="none", elinewidth=0.8, markersize=3.5, alpha=0.9,
        )  # fmt: skip
    if known:
        axes.axvline(1, color=style.COLOURS["limit"], linewidth=1)
    axes.set_yticks(list(height.values()), [f"{c}  {limits[c]:.0f} µs" if known else c for c in height])
    axes.set_ylim(0.3, len(cases) + 0.7)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:g}"[0] in "12346" and x >= 1 else "")
    axes.tick_params(axis="x", which="minor", labelsize=7, pad=5)
    axes.set_xlabel(f"{'time / limit (beside the case)' if known else 'time (µs)'}\nmedian, 95 % interval")
    gpus = int(rows["world_size"].max())
    axes.set_title(f"{style.operator_title(operator)}, {gpus} GPU{'s' if gpus > 1 else ''}", loc="right")
    made.legend(loc="outside upper center", ncols=2)
    style.label(made, rows, "CUDA graphs")
    return made
