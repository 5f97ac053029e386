"""One style for every figure: column width, colour-blind-safe colours, hatches for model bars; fonts and lines are in `fusedcc.mplstyle`."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_IN = 3.4
WIDE_IN = 7.0
MODEL_HATCH = "////"

# Okabe and Ito's palette, by meaning; markers repeat the meaning for those who print in grey.
COLOURS = {
    "fused": "#0072B2", "bulk": "#D55E00", "own": "#009E73", "library": "#E69F00", "other": "#CC79A7", "decomposed": "#56B4E9",
    "limit": "#000000", "paper": "#000000", "grey": "#777777",
}  # fmt: skip
MARKERS = {"fused": "o", "bulk": "s", "own": "D", "library": "^", "other": "v", "decomposed": "P"}

STYLE = Path(__file__).with_name("fusedcc.mplstyle")


def figure(
    height_in: float, width_in: float = COLUMN_IN, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure in the house style with its axes as a flat list."""
    plt.style.use(STYLE)
    made, axes = plt.subplots(
        rows, columns, figsize=(width_in, height_in), squeeze=False, layout="constrained", **options
    )
    return made, list(axes.flat)


def one_backend(rows: pd.DataFrame) -> str:
    """The backend of all rows. Raises `ValueError` when rows of several are mixed: no series may hold both."""
    found = sorted(rows["backend"].unique())
    if len(found) != 1:
        raise ValueError(f"a series mixes backends {', '.join(found)}; draw one figure for each")
    return found[0]


def label(made: Figure, rows: pd.DataFrame, note: str = "") -> None:
    """Say in the figure where its numbers come from."""
    backend = one_backend(rows)
    words = {"model": "timing model, nothing measured here", "gpu": "measured on GPUs", "emulator": "CPU emulator"}[
        backend
    ]
    machines = ", ".join(sorted(rows["machine"].unique()))
    parts = [f"backend: {backend} ({words})", f"machine: {machines}", *note.splitlines()]
    characters = int(19 * made.get_figwidth())
    lines = ["; ".join(parts)] if len("; ".join(parts)) <= characters else parts
    text = "\n".join(textwrap.fill(line, characters) for line in lines)
    made.supxlabel(text, fontsize=7, color=COLOURS["grey"])


def nothing(axes: Axes, why: str) -> None:
    """An empty figure says why it is empty."""
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, wrap=True)
    axes.set_axis_off()


def operator_title(operator: str) -> str:
    """embedding_all_to_all -> embedding + All-to-All."""
    first, _, rest = operator.partition("_")
    kind = {"all_to_all": "All-to-All", "all_reduce": "AllReduce"}[rest]
    return f"{first if first == 'embedding' else first.upper()} + {kind}"


def in_order(values: Iterable[str], order: Iterable[str]) -> list[str]:
    """The values that occur, in the given order; unknown ones after them."""
    present = list(dict.fromkeys(values))
    known = [v for v in order if v in present]
    return known + [v for v in present if v not in known]
