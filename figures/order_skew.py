"""Remote-first against oblivious order: how far apart the ranks end."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

NAMES = {"remote_first": "remote first", "oblivious": "oblivious"}
COLOURS = {"remote_first": "fused", "oblivious": "bulk"}
PAPER = "mi210-2node"  # the profile whose kind of system the paper's two numbers are from


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
    paper = inputs.of_paper("P9")
    numbers = pd.DataFrame(
        {
            "backend": "model",
            "machine": PAPER,
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
        for offset, (order, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
            part = model[(model["machine"] == machine) & (model["order"] == order)].set_index("case").reindex(cases)
            axes.bar([i + offset for i in range(len(cases))], part["skew_percent"], 0.36, color=style.COLOURS[colour], hatch=style.MODEL_HATCH,
                     edgecolor="white", label=NAMES[order])  # fmt: skip
        for value in rows[(rows["kind"] == "paper") & (rows["machine"] == machine)].itertuples():
            axes.axhline(value.skew_percent, color=style.COLOURS[COLOURS[value.case]], linewidth=1, linestyle="--",
                         label=f"paper, {NAMES[value.case]} ({value.note.replace('_', ' ')})")  # fmt: skip
        axes.set_title(machine, loc="left")
        axes.set_ylabel("skew, %")
    panels[-1].set_xticks(range(len(cases)), cases, rotation=45, ha="right")
    panels[-1].set_xlabel("{global batch | tables per GPU}; no bar: no skew")
    shown = {n: h for axes in panels for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    made.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=2)
    style.label(made, rows)
    return made
