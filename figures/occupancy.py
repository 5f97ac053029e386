"""Time against occupancy: physical work-groups a compute unit, fused and compute only."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

MACHINE = "mi210-x4"
CASES = {"embedding_all_to_all": "1024|64", "gemv_all_reduce": "32K|4K"}


def rows(inputs: Inputs) -> pd.DataFrame:
    """The sweep of one case of each operator on the paper's kind of node."""
    found = inputs.of_model("occupancy")
    return found[(found["machine"] == MACHINE) & (found["case"] == found["operator"].map(CASES))].reset_index(drop=True)


def draw(rows: pd.DataFrame) -> Figure:
    operators = list(dict.fromkeys(rows["operator"]))
    made, panels = style.figure(1.0 + 1.4 * len(operators), rows=len(operators), sharex=True)
    for axes, operator in zip(panels, operators, strict=True):
        for strategy, colour in (("fused", "fused"), ("compute", "own")):
            part = rows[(rows["operator"] == operator) & (rows["strategy"] == strategy)].sort_values(
                "occupancy_percent"
            )
            axes.plot(part["occupancy_percent"], part["time_us"], marker=style.MARKERS[colour], color=style.COLOURS[colour],
                      linestyle="-" if strategy == "fused" else "--", label=strategy)  # fmt: skip
        axes.set_title(
            f"{style.operator_title(operator)}, {rows[rows['operator'] == operator]['case'].iloc[0]}", loc="left"
        )
        axes.set_ylabel("time, µs")
        axes.set_ylim(bottom=0)
        axes.legend()
    panels[-1].set_xlabel("occupancy, % of the wave slots")
    style.label(made, rows)
    return made
