"""Registers, spills, shared memory and theoretical occupancy of every kernel and target, fused beside compute only."""

import pandas as pd

from .inputs import Inputs

COLUMNS = [
    "operator",
    "dtype",
    "target",
    "role",
    "kernel",
    "num_warps",
    "registers",
    "agprs",
    "spills",
    "shared_bytes",
    "occupancy_percent",
    "limited_by",
    "status",
]


def rows(inputs: Inputs) -> pd.DataFrame:
    found = inputs.frame("resources", "resources")
    found = found.assign(occupancy_percent=(100 * found["occupancy"]).round(1))
    return found.sort_values(["operator", "dtype", "target", "role", "kernel"], kind="stable")[COLUMNS].reset_index(
        drop=True
    )
