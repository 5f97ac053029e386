"""For which workloads the scale-out reduction holds: pooling against MLP width."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    """The sweep; `paper_percent` repeats the paper's number."""
    paper = inputs.of_paper("P5")["value"].iloc[0]
    return inputs.of_model("scaleout_sweep").assign(paper_percent=paper)


def draw(rows: pd.DataFrame) -> Figure:
    made, (axes,) = style.figure(2.5)
    table = rows.pivot(index="pooling", columns="mlp_width", values="reduction_percent").sort_index(ascending=False)
    axes.grid(False)
    shown = axes.imshow(table, cmap="cividis", aspect="auto", vmin=0)
    for (y, x), value in pd.DataFrame(table.to_numpy()).stack().items():
        axes.text(
            x,
            y,
            f"{value:.1f}",
            ha="center",
            va="center",
            color="white" if value < table.to_numpy().max() * 0.6 else "black",
        )
    axes.set_xticks(range(table.shape[1]), [f"{v:.0f}" for v in table.columns])
    axes.set_yticks(range(table.shape[0]), [f"{v:.0f}" for v in table.index])
    axes.set_xlabel("mean MLP width")
    axes.set_ylabel("pooling (rows a bag)")
    one = rows.iloc[0]
    axes.set_title(
        f"{one['nodes']:.0f} nodes, {one['scaling']} scaling (paper: {one['paper_percent']:.0f} %)",
        loc="left",
    )
    made.colorbar(shown, ax=axes, label="reduction of an iteration, %")
    style.label(made, rows)
    return made
