"""The timing model's predictions against recorded measurements: fitted on half of the cases, judged on the other half."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs, main

COLUMNS = [
    "panel",
    "backend",
    "machine",
    "operator",
    "case",
    "strategy",
    "half",
    "measured_us",
    "predicted_us",
    "verdict",
    "source",
]
MARKERS = {"compute": "s", "bulk": "o", "decomposed": "D", "fused": "^"}


def frame(data: Inputs) -> pd.DataFrame:
    """One row a predicted point; one a machine with its verdict in words, also where nothing was recorded."""
    points = data.model.get("validation", pd.DataFrame(columns=COLUMNS)).assign(panel="points")
    summary = data.model.get("validation_summary", pd.DataFrame(columns=COLUMNS)).assign(panel="verdict")
    return pd.concat([points, summary], ignore_index=True).reindex(columns=COLUMNS)


def draw(rows: pd.DataFrame) -> Figure:
    """Measured against predicted, logarithmic; verdicts in words below."""
    points, verdicts = rows[rows["panel"] == "points"], rows[rows["panel"] == "verdict"]
    machines = list(dict.fromkeys(points["machine"]))
    fig, axes = style.figure(
        1, max(1, len(machines)), style.WIDTH if len(machines) < 2 else style.WIDE, 3.2 if machines else 1.2
    )
    if not machines:
        style.nothing(fig, axes[0], "no measurements recorded")
    for ax, machine in zip(axes, machines, strict=False):
        mine = points[points["machine"] == machine]
        for (operator, strategy, half), group in mine.groupby(["operator", "strategy", "half"], sort=False):
            colour = dict(zip(style.OPERATORS, (style.BLUE, style.ORANGE, style.GREEN), strict=True)).get(
                operator, style.GREY
            )
            face = colour if half == "judge" else "none"
            ax.scatter(
                group["measured_us"],
                group["predicted_us"],
                s=12,
                marker=MARKERS.get(strategy, "x"),
                edgecolor=colour,
                facecolor=face,
                linewidth=0.7,
            )
        low, high = mine[["measured_us", "predicted_us"]].min().min(), mine[["measured_us", "predicted_us"]].max().max()
        ax.plot([low, high], [low, high], color="0.3", linewidth=0.8)
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="measured, µs",
            ylabel="model, µs",
            title=f"{machine} (filled: judged, hollow: fitted)",
        )
        for operator, colour in zip(style.OPERATORS, (style.BLUE, style.ORANGE, style.GREEN), strict=True):
            if operator in set(mine["operator"]):
                ax.plot([], [], "o", color=colour, label=style.label(operator))
        for strategy in dict.fromkeys(mine["strategy"]):
            ax.plot([], [], MARKERS.get(strategy, "x"), color="0.3", label=style.label(strategy))
        ax.legend(loc="upper left")
    words = [
        f"{row.machine}: {row.verdict}".replace("; ", ";\n").replace(" (target", "\n(target")
        for row in verdicts.itertuples()
    ]
    fig.supxlabel("\n".join([*words, *dict.fromkeys(rows["source"])]), fontsize=7, color="0.35")
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
