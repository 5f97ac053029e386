"""The timing model on every machine: mean reduction of fused against bulk, with the band that the assumed constants leave."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs, main

COLUMNS = [
    "backend",
    "machine",
    "operator",
    "cases",
    "mean_percent",
    "mean_low_percent",
    "mean_high_percent",
    "least_percent",
    "most_percent",
    "source",
]


def frame(data: Inputs) -> pd.DataFrame:
    """Arithmetic means over cases of percent reductions (each case counts once), their bands, and the extreme cases."""
    found = []
    rows = data.model.get("reduction")
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    for (machine, operator), group in rows.groupby(["machine", "operator"], sort=False):
        found.append(
            {
                "backend": "model", "machine": machine, "operator": operator, "cases": len(group), "mean_percent": group["reduction_percent"].mean(),
                "mean_low_percent": group["low_percent"].mean(), "mean_high_percent": group["high_percent"].mean(),
                "least_percent": group["reduction_percent"].min(), "most_percent": group["reduction_percent"].max(), "source": group["source"].iloc[0],
            }
        )  # fmt: skip
    return pd.DataFrame(found, columns=COLUMNS)


def draw(rows: pd.DataFrame) -> Figure:
    """Bars by machine; whiskers: mean over the band; ticks: least and most case."""
    style.one_backend(rows, "machine", "operator")
    fig, (ax,) = style.figure(1, 1, style.WIDTH, 2.9)
    machines = list(dict.fromkeys(rows["machine"]))
    colours = dict(zip(style.OPERATORS, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
    for index, operator in enumerate(style.OPERATORS):
        mine = rows[rows["operator"] == operator]
        at = np.array([machines.index(m) for m in mine["machine"]]) + (index - 1) * 0.27
        ax.bar(
            at,
            mine["mean_percent"],
            0.27,
            color=colours[operator],
            hatch=style.MODEL_HATCH,
            edgecolor="0.15",
            linewidth=0.4,
            label=style.label(operator),
        )
        errors = [
            (mine["mean_percent"] - mine["mean_low_percent"]).clip(lower=0),
            (mine["mean_high_percent"] - mine["mean_percent"]).clip(lower=0),
        ]
        ax.errorbar(at, mine["mean_percent"], yerr=errors, fmt="none", ecolor="0.1", elinewidth=0.8, capsize=1.5)
        ax.plot(at, mine["least_percent"], "_", color="0.1")
        ax.plot(at, mine["most_percent"], "_", color="0.1")
    ax.axhline(0, color="0.3", linewidth=0.6)
    ax.set_xticks(range(len(machines)), [f"model:\n{m}" for m in machines])
    ax.set_ylabel("% lower time, mean over cases")
    style.legend_above(fig, ax, 2)
    fig.supxlabel("bar: mean; whisker: over the assumed constants; ticks: extreme cases", fontsize=7, color="0.35")
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
