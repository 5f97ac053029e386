"""One style for every figure: column width, fonts of 7 points and more, colour-blind-safe colours, hatches for model bars."""

import textwrap
from collections.abc import Iterable

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

RC = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "svg.hashsalt": "fusedcc",
    "pdf.fonttype": 42,
    "figure.dpi": 200,
}


def figure(
    height_in: float, width_in: float = COLUMN_IN, rows: int = 1, columns: int = 1, **options: object
) -> tuple[Figure, list[Axes]]:
    """A figure in the house style with its axes as a flat list."""
    plt.rcParams.update(RC)
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
    words = {"model": "timing model, nothing measured", "gpu": "measured on GPUs", "emulator": "CPU emulator"}[backend]
    machines = ", ".join(sorted(rows["machine"].unique()))
    text = f"backend: {backend} ({words}); machine: {machines}{'; ' + note if note else ''}"
    characters = int(19 * made.get_figwidth())
    made.supxlabel("\n".join(textwrap.wrap(text, characters)), fontsize=7, color=COLOURS["grey"])


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
