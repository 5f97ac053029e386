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


COLUMNS = [
    "backend", "machine", "world_size", "case", "series", "arm", "time_us", "low_us", "high_us", "samples", "limit_us", "note",
]  # fmt: skip


def rows(inputs: Inputs, operator: str) -> pd.DataFrame:
    """One row a machine, case and series: the fastest arm of the series with its interval; `limit_us` as recorded.

    `note` says what speaks against the samples; a series without a time in this case but in others has a row with the reason.
    """
    timing = inputs.timing if inputs.timing is not None else pd.DataFrame()
    if timing.empty:
        return pd.DataFrame(columns=COLUMNS)
    timing = timing[(timing["operator"] == operator) & (timing["mode"] == "graph")]
    # One machine a figure: the one with the most GPUs, since only several GPUs communicate.
    timing = timing[timing["world_size"] == timing["world_size"].max()]
    arms = timing[["strategy", "arm", "face"]].drop_duplicates()
    names = [series_of(s, a, f) for s, a, f in arms.itertuples(index=False)]
    timing = timing.merge(arms.assign(series=names), on=["strategy", "arm", "face"])
    several = timing["world_size"].max() > 1
    timing = timing[~timing["series"].isin(["", "library_alone"] if several else [""])]
    found = compare.medians(timing).merge(arms.assign(series=names), on=["strategy", "arm", "face"])
    best = found.loc[found.groupby(["machine", "case", "series"], sort=False)["time_us"].idxmin()]
    against = timing[timing["status"] == "suspect"].groupby(["machine", "case", "arm"])["reason"].first()
    keys = pd.MultiIndex.from_frame(best[["machine", "case", "arm"]])
    best = best.assign(note=("suspect: " + against).reindex(keys).fillna("").to_numpy())
    everything = pd.concat([best, _absent(timing, best)], ignore_index=True).assign(backend="gpu")
    order = {case: n for n, case in enumerate(dict.fromkeys(timing["case"]))}
    everything = everything.assign(_o=everything["case"].map(order)).sort_values(["machine", "_o"], kind="stable")
    return everything[COLUMNS].reset_index(drop=True)


def _absent(timing: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Rows for the series that a case lacks and another has."""
    made = []
    for (machine, world_size, case), part in timing.groupby(["machine", "world_size", "case"], sort=False):
        there = best[(best["machine"] == machine) & (best["case"] == case)]
        for series in style.in_order(set(best["series"]) - set(there["series"]), SERIES):
            reasons = [r for r in part[part["series"] == series]["reason"].dropna().unique() if r]
            limits = part["limit_us"].dropna()
            made.append(
                {
                    "machine": machine,
                    "world_size": world_size,
                    "case": case,
                    "series": series,
                    "arm": "",
                    "samples": 0,
                    "limit_us": limits.median() if len(limits) else float("nan"),
                    "note": f"missing: {'; '.join(reasons) or 'no row'}",
                }
            )
    return pd.DataFrame(made, columns=[c for c in COLUMNS if c != "backend"])


def _notes(rows: pd.DataFrame) -> pd.Series:
    """Texts also where a column of nothing was read from CSV as numbers."""
    return rows["note"].astype("string").fillna("")


def draw(rows: pd.DataFrame, operator: str) -> Figure:
    if rows.empty:
        made, (axes,) = style.figure(1.2)
        style.nothing(axes, f"{style.operator_title(operator)}: no measured rows")
        return made
    cases = list(dict.fromkeys(rows["case"]))
    made, (axes,) = style.figure(max(2.0, 0.9 + 0.15 * len(cases)))
    limits = rows.groupby("case", sort=False)["limit_us"].first()
    timed = rows[rows["time_us"].notna()]
    known = bool(
        timed["limit_us"].notna().all()
    )  # not without the rates of the same run: then times stand by themselves
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
        doubted = _notes(part).str.startswith("suspect")
        axes.plot(
            ratio[doubted], part["case"][doubted].map(height), "x", color="black", markersize=5, markeredgewidth=0.7
        )
    absent = rows[_notes(rows).str.startswith("missing")]
    for at, name in enumerate(style.in_order(absent["series"], SERIES)):
        colour, marker = _LOOK[name]
        where = absent[absent["series"] == name]["case"].map(height)
        axes.plot(
            [1.03 + 0.04 * at] * len(where), where, style.MARKERS[marker], color=style.COLOURS[colour], fillstyle="none", markersize=3.5,
            transform=axes.get_yaxis_transform(), clip_on=False,
        )  # fmt: skip
    if known:
        axes.axvline(1, color=style.COLOURS["limit"], linewidth=1)
    axes.set_yticks(
        list(height.values()), [f"{c}  {limits[c]:.0f} µs" if known and limits[c] > 0 else c for c in height]
    )
    axes.set_ylim(0.3, len(cases) + 0.7)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:g}"[0] in "12346" and x >= 1 else "")
    axes.tick_params(axis="x", which="minor", labelsize=7, pad=5)
    legend = "\nmedian, 95 % interval"
    if _notes(rows).str.startswith("suspect").any():
        legend += "; crossed: suspect"
    if len(absent):
        legend += "\nhollow, beside the frame: no result"
    axes.set_xlabel(f"{'time / limit (beside the case)' if known else 'time (µs)'}{legend}")
    gpus = int(rows["world_size"].max())
    axes.set_title(f"{style.operator_title(operator)}, {gpus} GPU{'s' if gpus > 1 else ''}", loc="right")
    made.legend(loc="outside upper center", ncols=2)
    style.label(made, rows, "CUDA graphs")
    return made
