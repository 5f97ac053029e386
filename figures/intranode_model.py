"""The three operators on four GPUs of one node, as the timing model has it."""

import pandas as pd
from matplotlib.figure import Figure

from . import reductions
from .inputs import Inputs

CLAIMS = {"gemv_all_reduce": "P3", "embedding_all_to_all": "P1", "gemm_all_to_all": "P4"}


def rows(inputs: Inputs) -> pd.DataFrame:
    return reductions.rows(inputs, "mi210-x4", CLAIMS)


def draw(rows: pd.DataFrame) -> Figure:
    return reductions.draw(rows, "One node, 4 GPUs (model)")
