"""Colours, hatches, labels and files that all figures share. Okabe and Ito's colours: told apart by colour-blind readers."""

import io
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.errors import ArtifactError
from artifact.files import write_bytes

STYLE = Path(__file__).with_name("fusedcc.mplstyle")
WIDTH = 3.4  # inches: one column
WIDE = 7.0  # inches: two columns
ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE, GREY = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#999999",
)
COLOURS = {
    "fused": BLUE,
    "bulk": ORANGE,
    "bulk_vendor": ORANGE,
    "bulk_best": YELLOW,
    "push": YELLOW,
    "decomposed": GREEN,
    "compute": GREY,
    "t3": PURPLE,
    "t3_mca": RED,
    "in_switch": SKY,
    "ace": YELLOW,
    "remote_first": BLUE,
    "oblivious": ORANGE,
}
LABELS = {
    "fused": "fused",
    "bulk": "bulk",
    "bulk_vendor": "library + vendor collective",
    "bulk_best": "best baseline",
    "compute": "compute only",
    "decomposed": "decomposed",
    "t3": "T3",
    "t3_mca": "T3-MCA",
    "in_switch": "in-switch",
    "ace": "ACE",
    "remote_first": "remote first",
    "oblivious": "oblivious",
    "gemv_all_reduce": "GEMV + AllReduce",
    "embedding_all_to_all": "Embedding + All-to-All",
    "gemm_all_to_all": "GEMM + All-to-All",
}
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
MODEL_HATCH = "////"
FORMATS = ("pdf", "png", "svg")
# No dates and no tool versions in the files, so that the same frame gives the same bytes.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def label(name: str) -> str:
    """The reader's word for a strategy, order or operator."""
    return LABELS.get(name, name.replace("_", " "))


def hatch(backend: str) -> str | None:
    """Bars that a model made are hatched, measured ones are not."""
    return MODEL_HATCH if backend == "model" else None


def figure(
    rows: int = 1, columns: int = 1, width: float = WIDTH, height: float = 2.3, **options: object
) -> tuple[Figure, list[Axes]]:
    """A figure in the house style with its axes in reading order."""
    plt.style.use(STYLE)
    fig, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **options)
    return fig, list(axes.flat)


def one_backend(frame: pd.DataFrame, *series: str) -> None:
    """Raise `ArtifactError` if a series (rows that agree in the columns `series`) mixes backends or machines."""
    for key, group in frame.groupby(list(series)):
        for column in ("backend", "machine"):
            found = sorted(set(group[column]))
            if len(found) > 1:
                raise ArtifactError(f"series {key} mixes {column}s: {', '.join(found)}; allowed: one")


def footer(fig: Figure, frame: pd.DataFrame) -> None:
    """Where the rows come from, at the foot of the figure."""
    fig.supxlabel("; ".join(dict.fromkeys(frame["source"])), fontsize=7, color="0.35")


def nothing(fig: Figure, axes: Axes, reason: str) -> None:
    """Say in a panel that it has no rows, and why."""
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, fontsize=7, wrap=True)
    axes.set_axis_off()


def legend_above(fig: Figure, axes: Axes, columns: int) -> None:
    """One legend over the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=columns)


def save(fig: Figure, stem: Path) -> list[Path]:
    """Write PDF, PNG and SVG, whole files each; the same figure gives the same bytes."""
    written = []
    with matplotlib.rc_context(fname=STYLE):
        for kind in FORMATS:
            buffer = io.BytesIO()
            fig.savefig(buffer, format=kind, metadata=METADATA[kind])
            written.append(write_bytes(stem.with_suffix(f".{kind}"), buffer.getvalue()))
    plt.close(fig)
    return written
