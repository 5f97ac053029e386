"""Kernels broken on purpose, and what the emulator made of each: caught (by which report, at which seed), equivalent, survived."""

import pandas as pd

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    found = inputs.frame("mutants", "campaign")
    return found[["kernel", "mutant", "verdict", "seed", "seeds_tried", "time_s", "reason"]]
