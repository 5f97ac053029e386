"""One destination after the other, or all in turn: what the order of the fused kernels is worth, by the timing model."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

ORDERS = {"as assumed": "remote first", "destinations interleaved": "interleaved"}
MACHINES = ("mi210-x4", "mi300x-node", "h200-x4", "h200-x8")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Reduction of every case under both orders, on machines of which both were simulated."""
    found = inputs.of_model("assumptions")
    found = found[found["machine"].isin(MACHINES) & found["assumption"].isin(ORDERS)]
    return found.assign(order=found["assumption"].map(ORDERS)).drop(columns="assumption").reset_index(drop=True)


def draw(rows: pd.DataFrame) -> Figure:
    operators = list(dict.fromkeys(rows["operator"]))
    machines = style.in_order(rows["machine"], MACHINES)
    made, panels = style.figure(0.9 + 1.3 * len(operators), rows=len(operators), sharex=True)
    for axes, operator in zip(panels, operators, strict=True):
        for offset, (order, colour) in zip((-0.17, 0.17), (("remote first", "bulk"), ("interleaved", "fused")), strict=True):  # fmt: skip
            for place, machine in enumerate(machines):
                part = rows[(rows["operator"] == operator) & (rows["machine"] == machine) & (rows["order"] == order)]
                label = order if place == 0 else None
                axes.plot([place + offset] * len(part), part["reduction_percent"], style.MARKERS[colour], color=style.COLOURS[colour],
                          alpha=0.6, markeredgewidth=0, label=label)  # fmt: skip
                if len(part):
                    axes.hlines(part["reduction_percent"].mean(), place + offset - 0.13, place + offset + 0.13, color=style.COLOURS[colour])  # fmt: skip
        axes.axhline(0, color=style.COLOURS["grey"], linewidth=0.8)
        axes.set_title(style.operator_title(operator), loc="left")
        axes.set_ylabel("fused below bulk, %")
    panels[-1].set_xticks(range(len(machines)), machines)
    panels[-1].set_xlabel("point: case; line: mean over cases")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    style.label(made, rows)
    return made
