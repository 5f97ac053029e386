"""DLRM training on many simulated nodes: reduction against nodes, and where the time of an iteration goes."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

PARTS = (
    "embedding", "bottom_mlp", "exposed_all_to_all_forward", "interaction", "top_mlp", "exposed_all_to_all_backward",
    "embedding_update", "exposed_all_reduce",
)  # fmt: skip
_PART_COLOURS = ("#0072B2", "#bbbbbb", "#D55E00", "#dddddd", "#999999", "#E69F00", "#56B4E9", "#CC79A7")


def rows(inputs: Inputs) -> pd.DataFrame:
    """kind `reduction` (percent by nodes, scope, scaling and workload), `part` (us of an iteration), `paper` (percent)."""
    keys = ["backend", "machine", "workload", "topology", "nodes", "scaling", "scope"]
    lower = inputs.of_model("scaleout_reduction")
    lower = lower[(lower["topology"] == "torus2d") & (lower["scenario"] == "none")]
    lower = (
        lower[[*keys, "reduction_percent"]]
        .rename(columns={"reduction_percent": "value"})
        .assign(kind="reduction", part="")
    )
    parts = inputs.of_model("scaleout")
    main = inputs.of_paper("P5")
    parts = parts[
        (parts["topology"] == "torus2d") & (parts["scenario"] == "none") & (parts["scope"] == "iteration") & (parts["scaling"] == "weak")
        & (parts["component"] != "total") & (parts["workload"] == lower["workload"].iloc[0])
    ]  # fmt: skip
    parts = parts.rename(columns={"time_us": "value", "component": "part"}).assign(kind="part")[
        [*keys, "strategy", "value", "kind", "part"]
    ]
    paper = pd.DataFrame(
        {
            "backend": "model",
            "machine": lower["machine"].iloc[0],
            "kind": "paper",
            "value": main["value"],
            "part": main["confidence"],
        }
    )
    return pd.concat([lower, parts, paper], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    made, (left, right) = style.figure(4.2, style.WIDE_IN, 1, 2)
    lower = rows[rows["kind"] == "reduction"]
    looks = {"strong": "-", "weak": "--", "growing": ":"}
    workloads = list(dict.fromkeys(lower["workload"]))
    colours = dict(zip(workloads, (style.COLOURS[c] for c in ("fused", "bulk", "own", "other")), strict=False))
    for (workload, scaling), part in lower[lower["scope"] == "iteration"].groupby(["workload", "scaling"], sort=False):
        part = part.sort_values("nodes")
        left.plot(
            part["nodes"],
            part["value"],
            looks[scaling],
            marker="o",
            color=colours[workload],
            label=f"{workload}, {scaling}",
        )
    for value in rows[rows["kind"] == "paper"].itertuples():
        left.axhline(
            value.value,
            color=style.COLOURS["paper"],
            linewidth=1,
            linestyle="-.",
            label=f"paper, 128 nodes ({value.part})",
        )
    left.set_xscale("log", base=2)
    left.set_xticks(sorted(lower["nodes"].unique()), [f"{n:.0f}" for n in sorted(lower["nodes"].unique())])
    left.set_xlabel("nodes of a 2-D torus")
    left.set_ylabel("whole iteration: reduction, %")
    left.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))

    parts = rows[rows["kind"] == "part"]
    workload = parts["workload"].iloc[0]
    nodes = sorted(parts["nodes"].unique())
    for offset, strategy in ((-0.2, "bulk"), (0.2, "fused")):
        bottom = [0.0] * len(nodes)
        for name, colour in zip(PARTS, _PART_COLOURS, strict=True):
            of = parts[(parts["strategy"] == strategy) & (parts["part"] == name)].groupby("nodes")["value"].sum()
            heights = [of.get(n, 0.0) / 1000 for n in nodes]
            right.bar([i + offset for i in range(len(nodes))], heights, 0.36, bottom=bottom, color=colour, hatch=style.MODEL_HATCH, edgecolor="white",
                      linewidth=0.3, label=name.replace("_", " ").replace("all to all", "All-to-All").replace("all reduce", "AllReduce").replace("mlp", "MLP") if strategy == "bulk" else None)  # fmt: skip
            bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    right.set_xticks(range(len(nodes)), [f"{n:.0f}" for n in nodes])
    right.set_xlabel("nodes (left bar: bulk, right bar: fused)")
    right.margins(y=0.05)
    right.set_ylabel("time of an iteration, ms")
    right.set_title(f"{workload}, weak scaling", loc="left")
    right.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    style.label(made, rows)
    return made
