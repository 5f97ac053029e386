"""What a figure may read: the timing model's frames, timing rows of one machine, and the claims' paper values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import yaml

from artifact import results
from artifact.errors import ArtifactError
from artifact.evidence import kind_of


@dataclass(frozen=True)
class Inputs:
    """Frames by name, read once.

    Attributes:
        model: the timing model's frames by file name.
        timing: timing rows (of one backend; several machines possible).
        paper: claim, name, value, unit, confidence of every number of the paper.
    """

    model: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    timing: pd.DataFrame | None = None
    paper: pd.DataFrame | None = None

    def of_model(self, name: str) -> pd.DataFrame:
        """A frame of the timing model. Raises `ArtifactError` when the run did not make it."""
        if name not in self.model:
            raise ArtifactError(f"model file {name}.csv is missing; make it with: snakemake model")
        return self.model[name]

    def of_paper(self, claim: str) -> pd.DataFrame:
        """The paper's numbers that belong to a claim. Raises `ArtifactError` when they were not read."""
        if self.paper is None:
            raise ArtifactError("--claims is missing; give artifact/claims.yaml")
        return self.paper[self.paper["claim"] == claim]


def paper_values(claims: Path) -> pd.DataFrame:
    """The paper's numbers, from the one file that holds them."""
    document = yaml.safe_load(claims.read_text())
    records = [{"claim": claim["id"], **value} for claim in document["claims"] for value in claim.get("paper", [])]
    return pd.DataFrame(records, columns=["claim", "name", "value", "unit", "confidence"])


def load(model: Path | None, timing: list[Path], claims: Path | None) -> Inputs:
    """Read what is given; files that are not there are not inputs."""
    frames = {p.stem: results.read(p, kind_of(p)) for p in sorted(model.glob("*.csv"))} if model else {}
    rows = [results.read(p, "timing") for p in timing]
    return Inputs(
        frames, pd.concat(rows, ignore_index=True) if rows else None, paper_values(claims) if claims else None
    )
