"""Skew between the ends of the ranks' kernels under both orders of the work, by the timing model."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs, main

COLUMNS = ["backend", "machine", "operator", "case", "order", "late_us", "skew_percent", "source"]


def frame(data: Inputs) -> pd.DataFrame:
    """One row a machine, case, order and lateness of the last rank."""
    rows = data.model.get("skew")
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    return rows[rows["rank"] == 0][COLUMNS]


def draw(rows: pd.DataFrame) -> Figure:
    """One row of panels a machine: all ranks together (left), the last rank late (right)."""
    style.one_backend(rows, "machine", "order", "late_us")
    machines, lates = list(dict.fromkeys(rows["machine"])), sorted(set(rows["late_us"]))
    fig, axes = style.figure(
        max(1, len(machines)), max(1, len(lates)), style.WIDE, 0.9 + 1.5 * max(1, len(machines)), sharey="row"
    )
    for ax, (machine, late) in zip(axes, ((m, late) for m in machines for late in lates), strict=False):
        mine = rows[(rows["machine"] == machine) & (rows["late_us"] == late)]
        cases = list(dict.fromkeys(mine["case"]))
        for index, order in enumerate(("remote_first", "oblivious")):
            line = mine[mine["order"] == order].set_index("case").reindex(cases)
            at = np.arange(len(cases)) + (index - 0.5) * 0.4
            ax.bar(
                at,
                line["skew_percent"],
                0.4,
                color=style.COLOURS[order],
                hatch=style.MODEL_HATCH,
                edgecolor="0.15",
                linewidth=0.4,
                label=style.label(order),
            )
        ax.set_xticks(range(len(cases)), cases if machine == machines[-1] else [""] * len(cases), rotation=90)
        ax.set_title(
            f"model: {machine}, " + ("all ranks start together" if late == 0 else f"last rank {late:g} µs late")
        )
        ax.set_ylabel("skew, % of time" if late == lates[0] else "")
    if machines:
        style.legend_above(fig, axes[0], 2)
    style.footer(fig, rows)
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
