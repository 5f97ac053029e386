"""The timing model against measurements: every point, the half it was fitted on and the half it is judged on."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from . import style
from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    """Points (kind `point`) and the words of each half's verdict (kind `verdict`)."""
    points = inputs.of_model("validation").assign(kind="point")
    words = inputs.of_model("validation_summary").assign(kind="verdict")
    return pd.concat([points, words], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    points = rows[rows["kind"] == "point"]
    words = "\n".join(f"{v.half}, {v.machine}: {v.verdict}" for v in rows[rows["kind"] == "verdict"].itertuples())
    made, (axes,) = style.figure(3.3 + 0.2 * len(words.splitlines()))
    if points.empty:
        style.nothing(axes, "no measured point to compare with")
    else:
        looks = dict(zip(dict.fromkeys(points["operator"]), ("fused", "bulk", "own"), strict=False))
        for (operator, half), part in points.groupby(["operator", "half"], sort=False):
            axes.plot(part["measured_us"], part["predicted_us"], style.MARKERS[looks[operator]], color=style.COLOURS[looks[operator]],
                      fillstyle="full" if half == "judge" else "none", label=f"{style.operator_title(operator)}, {half}", markersize=3.5)  # fmt: skip
        times = np.log10(points[["measured_us", "predicted_us"]].to_numpy())
        ends = 10.0 ** np.array([np.floor(times.min()), np.ceil(times.max())])  # whole decades
        axes.plot(ends, ends, color=style.COLOURS["limit"], linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("measured, µs")
        axes.set_ylabel("predicted, µs")
        made.legend(loc="outside upper center", ncols=2, columnspacing=1)
    style.label(made, rows, words)
    return made
