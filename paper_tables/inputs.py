"""What a table may read, by the option that names it; each is read when it is asked for."""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import results
from artifact.errors import ArtifactError
from artifact.evidence import kind_of
from artifact.files import ROOT


@dataclass(frozen=True)
class Inputs:
    """Paths of this run's result files; None for what was not made."""

    verify: Path | None = None
    resources: Path | None = None
    operators: Path | None = None
    mutants: Path | None = None
    claims: Path | None = None
    hardware: Path | None = None
    model: Path | None = None
    benchmarks: Path | None = None
    timing: list[Path] = field(default_factory=list)
    cases: Path = ROOT / "experiments" / "cases"

    def frame(self, name: str, kind: str) -> pd.DataFrame:
        """Rows of the file given as --NAME. Raises `ArtifactError` when it was not given or does not fit."""
        path = getattr(self, name)
        if path is None:
            raise ArtifactError(f"--{name} is missing; give the file that this run made")
        return results.read(path, kind)

    def of_model(self, name: str) -> pd.DataFrame:
        """A frame of the timing model."""
        if self.model is None:
            raise ArtifactError("--model is missing; give the folder that `snakemake model` made")
        path = self.model / f"{name}.csv"
        return results.read(path, kind_of(path))

    def document(self, name: str) -> Any:
        """A JSON file given as --NAME."""
        path = getattr(self, name)
        if path is None or not path.is_file():
            raise ArtifactError(f"--{name} is {path}; give the JSON file that this run made")
        try:
            return json.loads(path.read_text())
        except ValueError as error:
            raise ArtifactError(f"{path} is not JSON: {error}") from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name result files."""
    for name in ("verify", "resources", "operators", "mutants"):
        parser.add_argument(f"--{name}", type=Path, metavar="CSV")
    for name in ("claims", "hardware"):
        parser.add_argument(f"--{name}", type=Path, metavar="JSON")
    for name in ("model", "benchmarks"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    parser.add_argument("--timing", type=Path, nargs="*", default=[], metavar="CSV")


def from_options(options: argparse.Namespace) -> Inputs:
    """The inputs that the options name."""
    names = ("verify", "resources", "operators", "mutants", "claims", "hardware", "model", "benchmarks", "timing")
    return Inputs(**{name: getattr(options, name) for name in names})
