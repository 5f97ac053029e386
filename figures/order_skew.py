"""Remote-first against oblivious order: how far apart the ranks end."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

NAMES = {"remote_first": "remote first", "oblivious": "oblivious"}


def rows(inputs: Inputs) -> pd.DataFrame:
    """Largest skew over ranks per case and order, without a late rank; and the paper's numbers (kind `paper`)."""
    found = inputs.of_model("skew")
    found = found[found["late_us"] == 0]
    largest = (
        found.groupby(["backend", "machine", "case", "order"], sort=False)["skew_percent"]
        .max()
        .reset_index()
        .assign(kind="model", note="")
    )
    paper = inputs.paper[inputs.paper["claim"] == "P9"]
    numbers = pd.DataFrame(
        {
            "backend": "model",
            "machine": found["machine"].iloc[0],
            "case": paper["name"],
            "skew_percent": paper["value"],
            "kind": "paper",
            "note": paper["confidence"],
        }
    )
    return pd.concat([largest, numbers], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    model = rows[rows["kind"] == "model"]
    machines = list(dict.fromkeys(model["machine"]))
    made, panels = style.figure(1.0 + 1.35 * len(machines), rows=len(machines), sharex=True)
    cases = list(dict.fromkeys(model["case"]))
    for axes, machine in zip(panels, machines, strict=True):
        for offset, order, colour in ((-0.2, "remote_first", "fused"), (0.2, "oblivious", "bulk")):
            part = model[(model["machine"] == machine) & (model["order"] == order)].set_index("case").reindex(cases)
            axes.bar([i + offset for i in range(len(cases))], part["skew_percent"], 0.36, color=style.COLOURS[colour], hatch=style.MODEL_HATCH,
                     edgecolor="white", label=NAMES[order])  # fmt: skip
        for value in rows[rows["kind"] == "paper"].itertuples():
            axes.axhline(value.skew_percent, color=style.COLOURS["paper"], linewidth=0.8, linestyle=":")
        axes.set_title(machine, loc="left")
        axes.set_ylabel("skew, %")
    panels[-1].set_xticks(range(len(cases)), cases, rotation=45, ha="right")
    panels[-1].set_xlabel("{global batch | tables per GPU}\ndotted: the paper's two numbers")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    style.label(made, rows)
    return made
