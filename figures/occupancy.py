"""What occupancy costs: time of the fused and the compute-only kernel against the part of the wave slots in use, by the timing model."""

import pandas as pd
from matplotlib.figure import Figure

from artifact import stats

from . import style
from .inputs import Inputs, main

COLUMNS = ["backend", "machine", "operator", "strategy", "occupancy_percent", "summary", "cases", "slowdown", "source"]


def frame(data: Inputs) -> pd.DataFrame:
    """Time relative to the same kernel at its fastest occupancy: geometric mean over cases."""
    found = []
    rows = data.model.get("occupancy")
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    for (machine, operator, strategy), group in rows.groupby(["machine", "operator", "strategy"], sort=False):
        table = group.pivot_table(index="case", columns="occupancy_percent", values="time_us")
        relative = table.div(table.min(axis=1), axis=0)
        for percent in relative.columns:
            mean = stats.geometric_mean(relative[percent].dropna().to_numpy())
            found.append(
                {
                    "backend": "model", "machine": machine, "operator": operator, "strategy": strategy, "occupancy_percent": percent, "summary": mean.kind,
                    "cases": mean.count, "slowdown": mean.value, "source": group["source"].iloc[0],
                }
            )  # fmt: skip
    return pd.DataFrame(found, columns=COLUMNS)


def draw(rows: pd.DataFrame) -> Figure:
    """One panel a machine and operator."""
    style.one_backend(rows, "machine", "operator", "strategy")
    groups = list(rows.groupby(["machine", "operator"], sort=False))
    fig, axes = style.figure(1, max(1, len(groups)), style.WIDE, 2.4, sharey=True)
    for ax, ((machine, operator), mine) in zip(axes, groups, strict=False):
        for strategy, line in mine.groupby("strategy", sort=False):
            ax.plot(
                line["occupancy_percent"],
                line["slowdown"],
                marker="o",
                linestyle="--",
                color=style.COLOURS[strategy],
                label=style.label(strategy),
            )
        ax.set_title(f"model: {machine}\n{style.label(operator)}")
        ax.set_xlabel("occupancy, %")
    if groups:
        axes[0].set_ylabel("time / time at best occupancy")
        style.legend_above(fig, axes[0], 2)
    fig.supxlabel("geometric mean over cases; " + "; ".join(dict.fromkeys(rows["source"])), fontsize=7, color="0.35")
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
