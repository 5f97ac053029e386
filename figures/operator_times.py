"""What the figures of the three operators share: measured arms beside the model's, case by case, with limits and failed cases."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact import compare

from . import style
from .inputs import Inputs

COLUMNS = [
    "panel", "backend", "machine", "operator", "case", "series", "arm", "time_us", "low_us", "high_us", "samples", "limit_us", "bound_us",
    "ratio", "ratio_low", "ratio_high", "status", "source",
]  # fmt: skip
MANY = 22  # cases in a panel: more have no room for two lines each
PAPER_MACHINES = ("mi210-x4", "mi210-2node")
NONE_MEASURED = "no measured rows: needs 2 GPUs with peer access,\nor recorded measurements in experiments/reference"


def measured(rows: pd.DataFrame, operator: str) -> list[dict[str, object]]:
    """Rows of the measured panel: fused, vendor baseline and best baseline of each case; failed cases keep a row without a time."""
    found: list[dict[str, object]] = []
    mine = rows[rows["operator"] == operator]
    for machine, group in mine.groupby("machine", sort=False):
        common = {
            "panel": "measured",
            "backend": "gpu",
            "machine": machine,
            "operator": operator,
            "source": group["source"].iloc[0],
        }
        pairs = {
            kind: {p.case: p for p in compare.pairs(group, operator, kind == "bulk_vendor")}
            for kind in ("bulk_vendor", "bulk_best")
        }
        own = compare.medians(group)
        computes = own[own["strategy"] == "compute"].groupby("case")["time_us"].min()
        for case in dict.fromkeys(group["case"]):
            pair = pairs["bulk_vendor"].get(case)
            if pair is None:
                reason = (
                    "; ".join(sorted({r for r in group.loc[group["case"] == case, "reason"] if r}))
                    or "no rows of both arms"
                )
                found.append({**common, "case": case, "series": "fused", "arm": reason[:80], "status": "missing"})
                continue
            bound = (
                max(float(computes.get(case, np.nan)), pair.limit_us)
                if np.isfinite(pair.limit_us)
                else computes.get(case, np.nan)
            )
            entries = [
                ("fused", pair.fused_arm, pair.fused, 1.0, 1.0, 1.0),
                ("bulk_vendor", pair.base_arm, pair.base, None, None, None),
            ]
            best = pairs["bulk_best"].get(case)
            if best is not None and best.base_arm != pair.base_arm:
                entries.append(("bulk_best", best.base_arm, best.base, None, None, None))
            for series, arm, interval, *_ in entries:
                ratio = {"fused": pair.ratio}.get(series)
                found.append(
                    {
                        **common, "case": case, "series": series, "arm": arm, "time_us": interval.value, "low_us": interval.low, "high_us": interval.high,
                        "samples": interval.samples, "limit_us": pair.limit_us, "bound_us": bound,
                        "ratio": ratio.value if ratio else interval.value / pair.base.value,
                        "ratio_low": ratio.low if ratio else np.nan, "ratio_high": ratio.high if ratio else np.nan, "status": "ok",
                    }
                )  # fmt: skip
    return found


def modelled(rows: pd.DataFrame | None, operator: str) -> list[dict[str, object]]:
    """Rows of the model panels: bulk and fused on the paper's machines, with the band that the assumed constants leave."""
    found: list[dict[str, object]] = []
    if rows is None:
        return found
    for row in rows[(rows["operator"] == operator) & rows["machine"].isin(PAPER_MACHINES)].itertuples():
        common = {
            "panel": "model",
            "backend": "model",
            "machine": row.machine,
            "operator": operator,
            "case": row.case,
            "status": "ok",
            "source": row.source,
        }
        found.append({**common, "series": "bulk", "arm": "bulk", "time_us": row.bulk_us, "ratio": 1.0})
        low, high = 1 - row.high_percent / 100, 1 - row.low_percent / 100
        found.append(
            {
                **common, "series": "fused", "arm": "fused", "time_us": row.fused_us, "ratio": 1 - row.reduction_percent / 100,
                "ratio_low": low, "ratio_high": high,
            }
        )  # fmt: skip
    return found


def frame_of(data: Inputs, operator: str) -> pd.DataFrame:
    """The frame of one operator's figure."""
    rows = measured(data.timing, operator) if data.timing is not None else []
    return pd.DataFrame(rows + modelled(data.model.get("reduction"), operator), columns=COLUMNS)


def _panel(axes: Axes, rows: pd.DataFrame, machine: str, backend: str) -> None:
    cases = list(dict.fromkeys(rows["case"]))
    series = [s for s in ("fused", "bulk", "bulk_vendor", "bulk_best") if s in set(rows["series"])]
    width = 0.8 / len(series)
    for index, name in enumerate(series):
        mine = rows[(rows["series"] == name) & (rows["status"] == "ok")].set_index("case")
        where = np.array([cases.index(c) for c in mine.index]) + (index - (len(series) - 1) / 2) * width
        colour = style.COLOURS[name]
        axes.bar(
            where,
            mine["ratio"],
            width,
            color=colour,
            edgecolor="0.15",
            linewidth=0.4,
            hatch=style.hatch(backend),
            label=style.label(name),
        )
        band = mine[mine["ratio_low"].notna()]
        if len(band) and name == "fused":
            at = np.array([cases.index(c) for c in band.index]) + (index - (len(series) - 1) / 2) * width
            errors = [
                (band["ratio"] - band["ratio_low"]).clip(lower=0),
                (band["ratio_high"] - band["ratio"]).clip(lower=0),
            ]
            axes.errorbar(at, band["ratio"], yerr=errors, fmt="none", ecolor="0.1", elinewidth=0.8, capsize=1.5)
    for case in rows.loc[rows["status"] != "ok", "case"]:
        axes.text(cases.index(case), 0.03, "missing", rotation=90, ha="center", va="bottom", color=style.RED)
    base = (
        rows[(rows["series"].isin(("bulk", "bulk_vendor"))) & (rows["status"] == "ok")]
        .drop_duplicates("case")
        .set_index("case")["time_us"]
    )
    bounds = rows[rows["bound_us"].notna()].drop_duplicates("case").set_index("case")["bound_us"]
    for case, bound in bounds.items():
        at = cases.index(case)
        axes.hlines(bound / base[case], at - 0.42, at + 0.42, color="0.1", linewidth=1, linestyle=":")
    gap = "\n" if len(cases) <= MANY else "  "
    labels = [f"{c}{gap}{base[c]:.0f} µs" if c in base.index else str(c) for c in cases]
    axes.set_xticks(range(len(cases)), labels, rotation=90, fontsize=7)
    axes.axhline(1, color="0.3", linewidth=0.6)
    axes.set_ylabel("time / bulk")
    axes.set_xlim(-0.6, len(cases) - 0.4)
    axes.set_title(f"{'model' if backend == 'model' else 'measured'}: {machine}")


def draw_of(frame: pd.DataFrame, operator: str) -> Figure:
    """One panel a machine; bars relative to bulk, whose time in microseconds stands under each case; dotted: no overlap can beat this."""
    style.one_backend(frame, "panel", "machine", "series")
    groups = [(str(b), str(m), g) for (b, m), g in frame.groupby(["backend", "machine"], sort=False)]
    empty = "measured" not in set(frame["panel"])
    panels = len(groups) + empty
    cases = max((g["case"].nunique() for _, _, g in groups), default=1)
    width = style.WIDE if cases > 6 else style.WIDTH
    fig, axes = style.figure(
        panels,
        1,
        width,
        (0.5 if empty else 0.2) + 2.3 * len(groups),
        height_ratios=[0.18] * empty + [1.0] * len(groups),
    )
    if empty:
        style.nothing(fig, axes[0], NONE_MEASURED)
    for ax, (backend, machine, rows) in zip(axes[int(empty) :], groups, strict=True):
        _panel(ax, rows, machine, backend)
    handles: dict[str, object] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(f"{name}{' (model)' if ax.get_title().startswith('model') else ''}", handle)
    if handles:
        fig.legend(
            handles.values(),
            handles.keys(),
            loc="outside upper center",
            ncols=min(3 if width > style.WIDTH else 2, len(handles)),
            title=style.label(operator),
        )
    style.footer(fig, frame)
    return fig
