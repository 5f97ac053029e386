"""DLRM training in simulation: percent lower iteration time of fused against bulk, by nodes, topology and workload sweep."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .inputs import Inputs, main

COLUMNS = [
    "panel",
    "backend",
    "machine",
    "series",
    "scaling",
    "nodes",
    "x",
    "bulk_us",
    "fused_us",
    "reduction_percent",
    "source",
]
WORKLOAD, TOPOLOGY = "dlrm-43x682", "torus2d"
MARKERS = "osD^vPX"
CYCLE = (style.BLUE, style.ORANGE, style.GREEN, style.RED, style.PURPLE, style.SKY, style.GREY)


def frame(data: Inputs) -> pd.DataFrame:
    """Rows of three panels: scaling, topologies and faults, sweep of the workload."""
    found = []
    rows = data.model.get(
        "scaleout_reduction", pd.DataFrame(columns=["scope", "scenario", "topology", "scaling", "workload", "nodes"])
    )
    main_rows = rows[(rows["topology"] == TOPOLOGY) & (rows["scenario"] == "none")]
    for row in main_rows.itertuples():
        if row.scope == "iteration":
            found.append(
                {**_common(row), "panel": "scaling", "series": f"{row.workload}, {row.scaling}", "x": str(row.nodes)}
            )
    # One size for the other topologies: the largest that all of them have.
    plain = rows[(rows["scope"] == "iteration") & (rows["scaling"] == "weak") & (rows["workload"] == WORKLOAD)]
    others = plain[plain["topology"] != TOPOLOGY]
    size = others["nodes"].max() if len(others) else None
    for row in plain[plain["nodes"] == size].itertuples():
        name = row.topology if row.scenario == "none" else f"{row.topology}, {row.scenario}"
        found.append({**_common(row), "panel": "topology", "series": "fused against bulk", "x": name})
    sweep = data.model.get("scaleout_sweep", pd.DataFrame(columns=["scope"]))
    for row in sweep.itertuples():
        found.append(
            {**_common(row), "panel": "sweep", "series": f"MLP width {row.mlp_width:g}", "x": f"{row.pooling:g}"}
        )
    return pd.DataFrame(found, columns=COLUMNS)


def _common(row: object) -> dict[str, object]:
    return {
        name: getattr(row, name)
        for name in ("backend", "machine", "scaling", "nodes", "bulk_us", "fused_us", "reduction_percent", "source")
    }


def draw(rows: pd.DataFrame) -> Figure:
    """Lines over nodes; bars by topology and fault; lines over pooling."""
    style.one_backend(rows, "panel", "series")
    fig, axes = style.figure(1, 3, style.WIDE, 3.1)
    titles = {"scaling": "2-D torus", "topology": "topologies and faults", "sweep": "workload sweep"}
    for ax, (panel, title) in zip(axes, titles.items(), strict=True):
        mine = rows[rows["panel"] == panel]
        if mine.empty:
            style.nothing(fig, ax, "no simulation rows")
            continue
        if panel == "topology":
            ax.barh(
                mine["x"],
                mine["reduction_percent"],
                color=style.BLUE,
                hatch=style.MODEL_HATCH,
                edgecolor="0.15",
                linewidth=0.4,
            )
            ax.invert_yaxis()
            ax.grid(axis="x")
            ax.grid(visible=False, axis="y")
            ax.set_xlabel("% lower iteration time")
            ax.set_title(f"{title}, {mine['nodes'].iloc[0]} nodes")
            continue
        order = sorted(mine["x"].unique(), key=float)
        for index, (name, line) in enumerate(mine.groupby("series", sort=False)):
            points = line.assign(at=[order.index(x) for x in line["x"]]).sort_values("at")
            ax.plot(
                points["at"],
                points["reduction_percent"],
                marker=MARKERS[index % 7],
                color=CYCLE[index % 7],
                linestyle="--",
                label=name,
            )
        ax.set_xticks(range(len(order)), [f"{float(x):g}" for x in order])
        ax.set_xlabel("nodes" if panel == "scaling" else f"pooling ({mine['nodes'].iloc[0]} nodes)")
        ax.set_ylabel("% lower iteration time")
        ax.axhline(0, color="0.3", linewidth=0.6)
        ax.set_title(title)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=1)
    style.footer(fig, rows)
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
