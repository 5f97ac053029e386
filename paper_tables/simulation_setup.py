"""Everything that the scale-out simulation assumes, with unit and source."""

import pandas as pd

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    return inputs.of_model("simulation_setup")
