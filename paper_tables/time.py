"""Wall time and peak memory of every step on this machine, from the workflow's benchmark files."""

import pandas as pd

from artifact.errors import ArtifactError

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    files = sorted(inputs.benchmarks.glob("*.tsv")) if inputs.benchmarks else []
    if not files:
        raise ArtifactError(f"--benchmarks is {inputs.benchmarks}; give the folder of this run's benchmark files")
    found = [pd.read_csv(path, sep="\t", na_values="-").assign(step=path.stem) for path in files]
    table = pd.concat(found, ignore_index=True)
    return table.rename(columns={"s": "wall_s", "max_rss": "peak_mb", "cpu_time": "cpu_s"})[
        ["step", "wall_s", "cpu_s", "peak_mb"]
    ]
