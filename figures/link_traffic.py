"""Traffic on one rank's links over time, by the timing model: fused against bulk."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs, main

COLUMNS = ["backend", "machine", "operator", "case", "strategy", "time_us", "link_gbps", "source"]
CASE = "1024|64"


def frame(data: Inputs) -> pd.DataFrame:
    """The traffic of one case (the middle one of the sweep, else the first) on each machine."""
    rows = data.model.get("traffic")
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    case = CASE if CASE in set(rows["case"]) else rows["case"].iloc[0]
    return rows[rows["case"] == case][COLUMNS]


def draw(rows: pd.DataFrame) -> Figure:
    """One panel a machine: bandwidth over the time of the call."""
    style.one_backend(rows, "machine", "strategy")
    machines = list(dict.fromkeys(rows["machine"]))
    fig, axes = style.figure(max(1, len(machines)), 1, style.WIDTH, 0.6 + 1.25 * max(1, len(machines)))
    for ax, machine in zip(axes, machines, strict=False):
        mine = rows[rows["machine"] == machine]
        for strategy, line in mine.groupby("strategy", sort=False):
            line = line.sort_values("time_us")
            ax.step(
                line["time_us"],
                line["link_gbps"],
                where="mid",
                color=style.COLOURS[strategy],
                linestyle="-" if strategy == "fused" else "--",
                label=style.label(strategy),
            )
        ax.set_title(f"model: {machine}, {style.label(mine['operator'].iloc[0])} {mine['case'].iloc[0]}")
        ax.set_ylabel("GB/s out")
        ax.set_ylim(bottom=0)
    if machines:
        axes[-1].set_xlabel("time since the start, µs")
        style.legend_above(fig, axes[0], 2)
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
