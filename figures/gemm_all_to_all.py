"""Measured times of gemm_all_to_all."""

import pandas as pd
from matplotlib.figure import Figure

from . import operator_times
from .inputs import Inputs

OPERATOR = "gemm_all_to_all"


def rows(inputs: Inputs) -> pd.DataFrame:
    return operator_times.rows(inputs, OPERATOR)


def draw(rows: pd.DataFrame) -> Figure:
    return operator_times.draw(rows, OPERATOR)
