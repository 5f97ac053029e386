"""Ways to hide a dependent collective, side by side, as the timing model has them."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

NAMES = {
    "bulk": "bulk",
    "decomposed": "decomposed",
    "fused": "fused",
    "t3": "T3",
    "t3_mca": "T3-MCA",
    "in_switch": "in-switch",
    "ace": "ACE",
}
MACHINES = ("mi210-x4", "mi210-2node", "h200-x2", "h200-x4")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Geometric mean over cases of time / bulk time, with the range over cases."""
    found = inputs.of_model("intranode")
    found = found[(found["status"] == "ok") & found["machine"].isin(MACHINES) & found["strategy"].isin(NAMES)]
    keys = ["machine", "operator", "case"]
    base = found[found["strategy"] == "bulk"].set_index(keys)["time_us"]
    found = found.assign(ratio=found["time_us"] / base.reindex(pd.MultiIndex.from_frame(found[keys])).to_numpy())
    groups = found.groupby(["backend", "machine", "operator", "strategy"], sort=False)["ratio"]
    return groups.agg(
        geometric_mean=lambda r: float(np.exp(np.log(r).mean())), lowest="min", highest="max", cases="count"
    ).reset_index()


def draw(rows: pd.DataFrame) -> Figure:
    operators = list(dict.fromkeys(rows["operator"]))
    made, panels = style.figure(4.6, rows=len(operators), sharex=True)
    names = [n for n in NAMES if n in set(rows["strategy"])]
    machines = style.in_order(rows["machine"], MACHINES)
    colours = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00")
    width = 0.8 / len(machines)
    for axes, operator in zip(panels, operators, strict=True):
        for at, (machine, colour) in enumerate(zip(machines, colours, strict=False)):
            part = (
                rows[(rows["operator"] == operator) & (rows["machine"] == machine)].set_index("strategy").reindex(names)
            )
            x = np.arange(len(names)) + (at - (len(machines) - 1) / 2) * width
            mean = part["geometric_mean"]
            axes.bar(x, mean, width, color=colour, hatch=style.MODEL_HATCH, edgecolor="white", linewidth=0.3, label=machine,
                     yerr=[(mean - part["lowest"]).fillna(0), (part["highest"] - mean).fillna(0)], error_kw={"elinewidth": 0.6})  # fmt: skip
        axes.axhline(1, color=style.COLOURS["grey"], linewidth=0.8)
        axes.set_title(style.operator_title(operator), loc="left")
        axes.set_ylabel("time / bulk")
    panels[-1].set_xticks(range(len(names)), [NAMES[n] for n in names], rotation=30, ha="right")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    panels[-1].set_xlabel("bar: geometric mean over cases\nline: range; no bar: not possible")
    style.label(made, rows)
    return made
