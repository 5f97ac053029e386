"""`python -m artifact.tasks --out FILE.svg`: the tasks of the artifact and what each needs, drawn for appendix and report."""

import argparse
import io
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import ArtifactError
from .files import write_bytes


@dataclass(frozen=True)
class Task:
    """A step of the workflow: its target, what it is, the tasks that it needs, and its column and row in the drawing."""

    target: str
    words: str
    needs: tuple[str, ...]
    place: tuple[float, float]


TASKS = {
    "T1": Task("build", "compile every kernel ahead of time,\nlist the PyTorch operators", (), (0, 2)),
    "T2": Task("verify", "compare with references\non the backend of this run", (), (0, 1)),
    "T3": Task("model", "timing model, scale-out simulation,\nvalidation on recorded measurements", (), (0, 0)),
    "T4": Task("measure_operator", "time all arms\n(only with 2 GPUs)", ("T2",), (1, 1.35)),
    "T5": Task("claims", "judge every claim", ("T1", "T2", "T3", "T4"), (2, 1.35)),
    "T6": Task("figures, tables", "from tidy rows", ("T1", "T2", "T3", "T4", "T5"), (2, 0)),
    "T7": Task("all", "notebook, HTML report", ("T5", "T6"), (3, 0.7)),
}


def draw() -> bytes:
    """The drawing as SVG; the same bytes every time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "fusedcc", "svg.fonttype": "none", "font.size": 8}):
        fig, ax = plt.subplots(figsize=(9.5, 3.2))
        where = {name: (3.1 * t.place[0], 1.3 * t.place[1]) for name, t in TASKS.items()}
        for name, task in TASKS.items():
            x, y = where[name]
            text = (
                f"{name}: snakemake {task.target}\n{task.words}"
                if task.target != "figures, tables"
                else f"{name}: snakemake figures tables\n{task.words}"
            )
            ax.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "#0072B2"},
                zorder=3,
            )
            for need in task.needs:
                ax.annotate(
                    "",
                    xy=(x, y),
                    xytext=where[need],
                    arrowprops={"arrowstyle": "->", "color": "0.45", "shrinkA": 45, "shrinkB": 45},
                )
        ax.set(xlim=(-1.5, 10.6), ylim=(-0.6, 3.2))
        ax.set_axis_off()
        buffer = io.BytesIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
        plt.close(fig)
    return buffer.getvalue()


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact.tasks", description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    options = p.parse_args(arguments)
    try:
        write_bytes(options.out, draw())
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"tasks: {len(TASKS)}, {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
