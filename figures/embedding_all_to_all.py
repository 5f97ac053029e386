"""Fused against bulk, case by case: embedding all to all."""

import pandas as pd
from matplotlib.figure import Figure

from . import operator_times
from .inputs import Inputs, main

OPERATOR = "embedding_all_to_all"


def frame(data: Inputs) -> pd.DataFrame:
    """One row a panel, case and series."""
    return operator_times.frame_of(data, OPERATOR)


def draw(rows: pd.DataFrame) -> Figure:
    """One panel a machine, measured first."""
    return operator_times.draw_of(rows, OPERATOR)


if __name__ == "__main__":
    raise SystemExit(main(frame, draw))
