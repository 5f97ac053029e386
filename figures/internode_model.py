"""Embedding + All-to-All between two nodes over RDMA, as the timing model has it."""

import pandas as pd
from matplotlib.figure import Figure

from . import reductions
from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    return reductions.rows(inputs, "mi210-2node", {"embedding_all_to_all": "P2"})


def draw(rows: pd.DataFrame) -> Figure:
    return reductions.draw(rows, "Two nodes, one GPU each, RDMA (model)")
