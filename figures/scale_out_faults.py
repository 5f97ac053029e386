"""DLRM training in simulation, beyond the paper's setting: other topologies, slow nodes, weak links."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs

TOPOLOGIES = {"torus2d": "2-D torus", "torus3d": "3-D torus", "fat_tree": "fat-tree", "dragonfly": "dragonfly"}
SCOPES = {"iteration": "whole iteration", "embedding_all_to_all": "embedding + All-to-All"}
_COLUMNS = ["backend", "machine", "workload", "topology", "nodes", "scaling", "scenario", "scope", "bulk_us", "fused_us", "reduction_percent"]  # fmt: skip


def rows(inputs: Inputs) -> pd.DataFrame:
    """kind `topology` (healthy networks) and `fault` (the 2-D torus, scenario `none` first), all at the studies' one size."""
    found = inputs.of_model("scaleout_reduction")[_COLUMNS]
    other = found[found["topology"] != "torus2d"].iloc[0]
    found = found[(found["nodes"] == other["nodes"]) & (found["workload"] == other["workload"]) & (found["scaling"] == other["scaling"])]  # fmt: skip
    healthy = found[found["scenario"] == "none"]
    torus = found[(found["topology"] == "torus2d") & (found["scope"] == "iteration")]
    faults = torus.sort_values("scenario", key=lambda s: s != "none", kind="stable")
    return pd.concat([healthy.assign(kind="topology"), faults.assign(kind="fault")], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    made, (left, right) = style.figure(2.9, style.WIDE_IN, 1, 2)
    of = rows[rows["kind"] == "topology"]
    names = [t for t in TOPOLOGIES if t in set(of["topology"])]
    for offset, (scope, colour) in zip((-0.2, 0.2), (("iteration", "fused"), ("embedding_all_to_all", "decomposed")), strict=True):  # fmt: skip
        part = of[of["scope"] == scope].set_index("topology")["reduction_percent"].reindex(names)
        bars = left.bar([i + offset for i in range(len(names))], part, 0.36, color=style.COLOURS[colour], hatch=style.MODEL_HATCH,
                        edgecolor="white", linewidth=0.3, label=SCOPES[scope])  # fmt: skip
        left.bar_label(bars, fmt="%.0f", fontsize=7)
    left.axhline(0, color=style.COLOURS["grey"], linewidth=0.8)
    left.set_xticks(range(len(names)), [TOPOLOGIES[n] for n in names])
    left.set_ylabel("fused below bulk, %")
    left.margins(y=0.12)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)

    faults = rows[rows["kind"] == "fault"]
    places = range(len(faults), 0, -1)
    for offset, strategy in ((0.19, "bulk"), (-0.19, "fused")):
        right.barh([p + offset for p in places], faults[f"{strategy}_us"] / 1000, 0.36, color=style.COLOURS[strategy], hatch=style.MODEL_HATCH,
                   edgecolor="white", linewidth=0.3, label=strategy)  # fmt: skip
    widest = faults["bulk_us"].max() / 1000
    for place, row in zip(places, faults.itertuples(), strict=True):
        right.text(
            row.bulk_us / 1000 + 0.01 * widest, place, f"{-row.reduction_percent:+.1f} %", va="center", fontsize=7
        )
    right.set_yticks(list(places), ["healthy" if s == "none" else s for s in faults["scenario"]])
    right.set_xlim(0, 1.18 * widest)
    right.set_xlabel("time of an iteration on a 2-D torus, ms")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    one = rows.iloc[0]
    left.set_title(f"{one['workload']}, {one['nodes']:.0f} nodes, {one['scaling']} scaling", loc="left")
    style.label(made, rows)
    return made
