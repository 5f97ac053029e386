"""Every claim, the paper's number with its confidence mark, and the verdicts of this run, the recorded data and the model."""

import pandas as pd

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    def words(verdict: dict[str, str] | None) -> str:
        return "" if verdict is None else f"{verdict['status']}: {verdict['detail']}"

    return pd.DataFrame(
        [
            {
                "claim": claim["id"],
                "statement": claim["title"],
                "paper [confidence]": "; ".join(claim["paper"]),
                "this run": words(claim["this_run"]),
                "recorded": words(claim["reference"]),
                "timing model": words(claim["model"]),
            }
            for claim in inputs.document("claims")
        ]
    )
