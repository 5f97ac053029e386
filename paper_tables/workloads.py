"""Shapes that are timed, and where they come from."""

import pandas as pd

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row a timing case; the operator's own sizes in one cell."""
    found = []
    for path in sorted(inputs.cases.glob("*.csv")):
        if path.stem.startswith("verify_"):
            continue
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, comment="#")
        common = [c for c in ("case", "model", "dtype", "source") if c in frame]
        sizes = [c for c in frame.columns if c not in common]
        words = frame[sizes].apply(lambda row: ", ".join(f"{k} {v}" for k, v in row.items()), axis=1)
        found.append(frame[common].assign(operator=path.stem, sizes=words))
    table = pd.concat(found, ignore_index=True)
    return table[["operator", *[c for c in table.columns if c != "operator"]]]
