"""What a run has shown so far: its result files, typed; a file that does not exist is None."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from . import results

MODEL_FILES = (
    "intranode", "reduction", "sensitivity", "skew", "occupancy", "traffic", "assumptions", "scaleout", "scaleout_reduction",
    "scaleout_sweep", "validation", "validation_constants", "validation_summary", "machine_profiles", "simulation_setup",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """Frames by what they show.

    Attributes:
        backend: where this run's kernels ran: emulator or gpu.
        verify, resources, operators: this run's correctness rows, the ahead-of-time build, the registered torch operators.
        measured: this run's timing rows; None unless backend is gpu.
        recorded: timing rows recorded on a named machine.
        model: the timing model's frames by file name.
    """

    backend: str
    verify: pd.DataFrame | None = None
    resources: pd.DataFrame | None = None
    operators: pd.DataFrame | None = None
    measured: pd.DataFrame | None = None
    recorded: pd.DataFrame | None = None
    model: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def kind_of(path: Path) -> str:
    """The schema kind of a model file, by its name."""
    return "timing" if path.stem == "intranode" else path.stem


def _one(path: Path | None, kind: str) -> pd.DataFrame | None:
    return results.read(path, kind) if path is not None else None


def _timings(paths: list[Path]) -> pd.DataFrame | None:
    frames = [results.read(p, "timing") for p in paths]
    return pd.concat(frames, ignore_index=True) if frames else None


def load(
    backend: str,
    verify: Path | None = None,
    resources: Path | None = None,
    operators: Path | None = None,
    measured: list[Path] | None = None,
    recorded: list[Path] | None = None,
    model: list[Path] | None = None,
) -> Evidence:
    """Read the files that are given. Raises `ArtifactError` naming file, column and value of a cell that does not fit."""
    return Evidence(
        backend,
        _one(verify, "verify"),
        _one(resources, "resources"),
        _one(operators, "operators"),
        _timings(measured or []),
        _timings(recorded or []),
        {p.stem: results.read(p, kind_of(p)) for p in model or []},
    )
