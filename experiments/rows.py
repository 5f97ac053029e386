"""Tidy rows of this room's results, written whole and at once. The columns are those of `artifact/results.py`.

Written with the csv module, and checked against the schema only where pandera is installed: GPU machines often lack it.
"""

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import require

TIMING = (
    "operator", "case", "arm", "strategy", "face", "mode", "backend", "machine", "world_size", "dtype", "sample", "time_us",
    "limit_us", "bytes_read", "bytes_sent", "flops", "status", "reason",
)  # fmt: skip
VERIFY = (
    "operator", "case", "strategy", "transport", "dtype", "world_size", "call", "seed", "rank", "max_abs_error", "bound",
    "remote_stores", "flags_delivered", "status", "reason",
)  # fmt: skip

Row = Mapping[str, Any]


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value


def write(path: Path, rows: Iterable[Row], columns: tuple[str, ...]) -> None:
    """Write all rows; the file is the old one or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({c: _cell(row.get(c)) for c in columns} for row in rows)
    part.replace(path)


def read(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows written before, as text; none if the file is not there. Raises `ExperimentError` for other columns."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        found = tuple(reader.fieldnames or ())
        require(found == columns, f"columns of {path.name}", ", ".join(found), ", ".join(columns))
        return list(reader)
