"""Result files in, frames with a `source` label out; and the command line that every figure has."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from artifact import provenance, results
from artifact.errors import ArtifactError
from artifact.files import replacing

from . import style

KIND = {"intranode": "timing"}


@dataclass(frozen=True)
class Inputs:
    """Frames for one figure: timing rows of this run and recorded ones, the model's frames by file name, the build's rows."""

    measured: pd.DataFrame | None = None
    recorded: pd.DataFrame | None = None
    model: dict[str, pd.DataFrame] = field(default_factory=dict)
    resources: pd.DataFrame | None = None

    @property
    def timing(self) -> pd.DataFrame | None:
        """Timing rows: this run's, else the recorded ones."""
        return self.measured if self.measured is not None else self.recorded


def source_label(path: Path, recorded: bool = False) -> str:
    """What a footer says of a file: recorded, made by uncommitted code, or without provenance. Empty when there is nothing to say."""
    words = ["recorded"] if recorded else []
    try:
        words += ["uncommitted code"] if provenance.read(path)["git_dirty"] else []
    except ArtifactError:
        words.append("no provenance")
    return f" ({', '.join(words)})" if words else ""


def read(path: Path, kind: str, recorded: bool = False) -> pd.DataFrame:
    """Rows of one file with a `source` column for the footer."""
    frame = results.read(path, kind)
    note = source_label(path, recorded)
    if "machine" in frame and "backend" in frame:
        return frame.assign(source=frame["backend"] + ", " + frame["machine"] + note)
    return frame.assign(source=kind + note)


def load(arguments: argparse.Namespace) -> Inputs:
    """All files that the command line names."""

    def timings(paths: list[Path], recorded: bool) -> pd.DataFrame | None:
        return pd.concat([read(p, "timing", recorded) for p in paths], ignore_index=True) if paths else None

    return Inputs(
        timings(arguments.measured, False),
        timings(arguments.recorded, True),
        {p.stem: read(p, KIND.get(p.stem, p.stem)) for p in arguments.model},
        read(arguments.resources, "resources") if arguments.resources else None,
    )


def write_frame(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write the figure's frame, and give it back as a reader of the file will see it."""
    with replacing(path) as part:
        frame.to_csv(part, index=False, lineterminator="\n", float_format="%.6g")
    return read_frame(path)


def read_frame(path: Path) -> pd.DataFrame:
    """A figure's frame from the CSV beside it."""
    try:
        return pd.read_csv(path, keep_default_na=True)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} is not a figure's CSV file: {str(error).splitlines()[0]}") from None


def main(
    frame: Callable[[Inputs], pd.DataFrame], draw: Callable[[pd.DataFrame], Figure], arguments: list[str] | None = None
) -> int:
    """The command line of a figure: rows in, CSV, PDF, PNG and SVG out; or --from-csv to draw again from its CSV alone."""
    p = argparse.ArgumentParser()
    p.add_argument("--measured", nargs="*", type=Path, default=[], help="timing rows of this run")
    p.add_argument("--recorded", nargs="*", type=Path, default=[], help="timing rows recorded on a named machine")
    p.add_argument("--model", nargs="*", type=Path, default=[], help="rows of the timing model")
    p.add_argument("--resources", type=Path, help="rows of the ahead-of-time build")
    p.add_argument("--from-csv", type=Path, help="draw from a CSV that this figure wrote before")
    p.add_argument("--out", type=Path, required=True, help="path of the figure without its ending")
    options = p.parse_args(arguments)
    try:
        rows = (
            read_frame(options.from_csv)
            if options.from_csv
            else write_frame(frame(load(options)), options.out.with_suffix(".csv"))
        )
        written = style.save(draw(rows), options.out)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{', '.join(str(path) for path in written)}: {len(rows)} rows")
    return 0
