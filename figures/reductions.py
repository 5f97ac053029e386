"""Predicted reductions of execution time, case by case, with the band of the model's sensitivity, beside the paper's numbers."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

COLUMNS = ["backend", "machine", "operator", "case", "kind", "reduction_percent", "low_percent", "high_percent", "note"]


def rows(inputs: Inputs, machine: str, claims: dict[str, str]) -> pd.DataFrame:
    """Predictions (kind `model`) on a machine, and the paper's numbers of an operator's claim (kind `paper`)."""
    found = inputs.of_model("reduction")
    found = found[(found["machine"] == machine) & found["operator"].isin(claims)].assign(kind="model", note="")
    paper = []
    for operator, claim in claims.items():
        for value in inputs.of_paper(claim).itertuples():
            paper.append(
                {
                    "backend": "model",
                    "machine": machine,
                    "operator": operator,
                    "case": value.name,
                    "kind": "paper",
                    "reduction_percent": value.value,
                    "note": value.confidence,
                }
            )
    return pd.concat([found, pd.DataFrame(paper)], ignore_index=True)[COLUMNS]


def draw(rows: pd.DataFrame, title: str) -> Figure:
    operators = list(dict.fromkeys(rows["operator"]))
    cases = [rows[(rows["operator"] == o) & (rows["kind"] == "model")] for o in operators]
    lines = [max(len(c), 4) for c in cases]
    made, panels = style.figure(
        0.9 + 0.16 * sum(lines) + 0.5 * len(operators), rows=len(operators), sharex=True, gridspec_kw={"height_ratios": lines}
    )  # fmt: skip
    for axes, operator, part in zip(panels, operators, cases, strict=True):
        places = range(len(part), 0, -1)
        spread = [part["reduction_percent"] - part["low_percent"], part["high_percent"] - part["reduction_percent"]]
        axes.barh(
            places, part["reduction_percent"], xerr=[s.clip(lower=0) for s in spread], color=style.COLOURS["fused"], alpha=0.75,
            hatch=style.MODEL_HATCH, edgecolor="white", height=0.7, error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )  # fmt: skip
        axes.set_yticks(list(places), part["case"])
        axes.set_ylim(0.3, len(part) + 0.7)
        axes.set_title(style.operator_title(operator), loc="left", pad=16)
        paper = rows[(rows["operator"] == operator) & (rows["kind"] == "paper")]
        marks = [
            axes.axvline(value.reduction_percent, color=style.COLOURS["paper"], linestyle=dash, linewidth=1,
                         label=f"paper, {value.case} ({value.note.replace('_', ' ')})")
            for value, dash in zip(paper.itertuples(), ("--", ":"), strict=False)
        ]  # fmt: skip
        axes.legend(
            handles=marks, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=2, columnspacing=1
        )
        axes.axvline(0, color=style.COLOURS["grey"], linewidth=0.8)
    panels[-1].set_xlabel(
        "fused below bulk: lower execution time, %\nwhiskers: link ±30 %, memory ±20 %,\nlaunch ×0.5–2"
    )
    made.suptitle(title, fontsize=8)
    style.label(made, rows)
    return made
