"""Ways to overlap a dependent collective, by the timing model: time relative to bulk, geometric mean over cases."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from artifact import stats

from . import style
from .inputs import Inputs, main

COLUMNS = [
    "backend",
    "machine",
    "operator",
    "strategy",
    "summary",
    "cases",
    "ratio",
    "least",
    "most",
    "reason",
    "source",
]
ORDER = ("bulk", "decomposed", "fused", "t3", "t3_mca", "in_switch", "ace")
MACHINES = ("mi210-x4", "h200-x4")


def frame(data: Inputs) -> pd.DataFrame:
    """One row a machine, operator and strategy; a strategy that cannot run keeps its row, with the reason."""
    found = []
    rows = data.model.get("intranode")
    if rows is None:
        return pd.DataFrame(columns=COLUMNS)
    for (machine, operator), group in rows[rows["machine"].isin(MACHINES)].groupby(["machine", "operator"], sort=False):
        bulk = group[group["strategy"] == "bulk"].set_index("case")["time_us"]
        for strategy in ORDER:
            mine = group[group["strategy"] == strategy]
            common = {
                "backend": "model",
                "machine": machine,
                "operator": operator,
                "strategy": strategy,
                "source": group["source"].iloc[0],
            }
            done = mine[mine["status"] == "ok"].set_index("case")["time_us"]
            ratios = (done / bulk).dropna()
            if ratios.empty:
                reason = mine["reason"].iloc[0] if len(mine) else "not modelled"
                found.append({**common, "cases": 0, "reason": reason})
                continue
            mean = stats.geometric_mean(ratios.to_numpy())
            found.append(
                {
                    **common,
                    "summary": mean.kind,
                    "cases": mean.count,
                    "ratio": mean.value,
                    "least": ratios.min(),
                    "most": ratios.max(),
                }
            )
    return pd.DataFrame(found, columns=COLUMNS)


def draw(rows: pd.DataFrame) -> Figure:
    """One panel a machine; whiskers: the extreme cases; "n/a": does not exist for that collective."""
    style.one_backend(rows, "machine", "operator", "strategy")
    machines = list(dict.fromkeys(rows["machine"]))
    fig, axes = style.figure(max(1, len(machines)), 1, style.WIDE, 0.7 + 1.7 * max(1, len(machines)))
    for ax, machine in zip(axes, machines, strict=False):
        mine = rows[rows["machine"] == machine]
        operators = [o for o in style.OPERATORS if o in set(mine["operator"])]
        for index, strategy in enumerate(ORDER):
            line = mine[mine["strategy"] == strategy].set_index("operator").reindex(operators)
            at = np.arange(len(operators)) + (index - (len(ORDER) - 1) / 2) * 0.12
            ax.bar(
                at,
                line["ratio"].fillna(0),
                0.12,
                color=style.COLOURS[strategy],
                hatch=style.MODEL_HATCH,
                edgecolor="0.15",
                linewidth=0.4,
                label=style.label(strategy),
            )
            errors = [(line["ratio"] - line["least"]).fillna(0), (line["most"] - line["ratio"]).fillna(0)]
            ax.errorbar(at, line["ratio"], yerr=errors, fmt="none", ecolor="0.1", elinewidth=0.7, capsize=1)
            for x, value in zip(at, line["ratio"], strict=True):
                if not np.isfinite(value):
                    ax.text(x, 0.02, "n/a", rotation=90, ha="center", va="bottom")
        ax.axhline(1, color="0.3", linewidth=0.6)
        ax.set_xticks(range(len(operators)), [style.label(o) for o in operators])
        ax.set_ylabel("time / bulk")
        ax.set_title(f"model: {machine}")
    if machines:
        style.legend_above(fig, axes[0], len(ORDER))
    fig.supxlabel(
        "geometric mean of time ratios over cases; whiskers: extreme cases; "
        + "; ".join(dict.fromkeys(rows["source"])),
        fontsize=7,
        color="0.35",
    )
    return fig


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
