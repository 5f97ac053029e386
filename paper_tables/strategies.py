"""Ways to hide a dependent collective: geometric mean of time over bulk time, by machine and operator (timing model)."""

import pandas as pd

from artifact import stats

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    found = inputs.of_model("intranode")
    found = found[found["status"] == "ok"]
    keys = ["machine", "operator", "case"]
    base = found[found["strategy"] == "bulk"].set_index(keys)["time_us"]
    found = found.assign(ratio=found["time_us"] / base.reindex(pd.MultiIndex.from_frame(found[keys])).to_numpy())
    means = found.groupby(["machine", "operator", "strategy"], sort=False)["ratio"].agg(
        lambda r: stats.geometric_mean(r).value
    )
    return means.unstack("strategy").rename(columns=lambda c: f"{c} / bulk").reset_index().assign(backend="model")
