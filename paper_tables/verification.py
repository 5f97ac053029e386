"""Correctness cases by operator, transport, dtype and world size: how many, how close to the bound, what was delivered."""

import pandas as pd

from .inputs import Inputs

KEYS = ["operator", "transport", "dtype", "world_size"]


def rows(inputs: Inputs) -> pd.DataFrame:
    found = inputs.frame("verify", "verify")
    found = found.assign(share=found["max_abs_error"] / found["bound"].where(found["bound"] > 0))
    groups = found.groupby(KEYS, sort=True)
    made = groups.agg(
        cases=("case", "nunique"),
        calls=("call", "count"),
        largest_error_over_bound=("share", "max"),
        remote_stores=("remote_stores", "sum"),
        flags_delivered=("flags_delivered", "sum"),
    )
    for status in ("ok", "failed", "missing"):
        made[status] = groups["status"].apply(lambda s, status=status: int((s == status).sum()))
    return made.reset_index()
