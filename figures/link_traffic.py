"""Traffic of a link over the time of one call: bulk in one burst, fused spread over the kernel."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

MACHINES = ("mi210-x4", "mi210-2node")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Gigabytes a second on one rank's busiest link, of one case (the first), per machine and strategy."""
    found = inputs.of_model("traffic")
    return found[found["machine"].isin(MACHINES) & (found["case"] == "1024|64")].reset_index(drop=True)


def draw(rows: pd.DataFrame) -> Figure:
    machines = style.in_order(rows["machine"], MACHINES)
    made, panels = style.figure(3.4, rows=len(machines))
    for axes, machine in zip(panels, machines, strict=True):
        for strategy in ("bulk", "fused"):
            part = rows[(rows["machine"] == machine) & (rows["strategy"] == strategy)].sort_values("time_us")
            line = "--" if strategy == "bulk" else "-"
            axes.plot(
                part["time_us"],
                part["link_gbps"],
                line,
                color=style.COLOURS[strategy],
                label=f"{strategy}: peak {part['link_gbps'].max():.1f} GB/s",
            )
        axes.set_title(f"{machine}, {rows['case'].iloc[0]}", loc="left")
        axes.set_ylabel("link, GB/s")
        axes.set_ylim(0, 1.6 * rows[rows["machine"] == machine]["link_gbps"].max())  # room for the legend
        axes.legend(loc="upper left")
    panels[-1].set_xlabel("time since the call, µs")
    style.label(made, rows)
    return made
