"""Case lists in, tidy rows out. Columns of timing rows are those of the artifact's result schema; the others are documented in `README.md`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from .errors import require

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DTYPES = ("float32", "bfloat16", "float16")


def cases(operator: str) -> list[dict[str, object]]:
    """The model's case list of one operator. Raises `ModelError` for a malformed file."""
    path = HERE / "cases" / f"{operator}.csv"
    require(path.exists(), "case list", path.name, ", ".join(sorted(p.name for p in path.parent.glob("*.csv"))))
    frame = pd.read_csv(path)
    for column in ("case", "dtype"):
        require(column in frame.columns, f"{path.name}: columns", list(frame.columns), f"with {column}")
    require(not frame.isna().any().any(), f"{path.name}: empty cells", int(frame.isna().sum().sum()), "none")
    require(frame["case"].is_unique, f"{path.name}: case", "repeated", "each once")
    bad = sorted(set(frame["dtype"]) - set(DTYPES))
    require(not bad, f"{path.name}: dtype", bad, ", ".join(DTYPES))
    return frame.to_dict("records")


def timing_row(
    operator: str,
    case: Mapping[str, object],
    strategy: str,
    machine: str,
    world_size: int,
    figures: Mapping[str, float],
    reason: str = "",
) -> dict[str, object]:
    """One timing row of backend "model"; `figures`: time_us, limit_us, bytes_read, bytes_sent, flops (absent when not run)."""
    return {
        "operator": operator,
        "case": case["case"],
        "arm": strategy,
        "strategy": strategy,
        "face": "none",
        "mode": "model",
        "backend": "model",
        "machine": machine,
        "world_size": world_size,
        "dtype": case["dtype"],
        "sample": 0,
        **{k: figures.get(k) for k in ("time_us", "limit_us", "bytes_read", "bytes_sent", "flops")},
        "status": "skipped" if reason else "ok",
        "reason": reason,
    }


# Columns of files that may have no rows, so that they have a header all the same.
EMPTY = {
    "validation": [
        "backend",
        "machine",
        "operator",
        "case",
        "arm",
        "strategy",
        "world_size",
        "dtype",
        "half",
        "measured_us",
        "predicted_us",
        "error_percent",
    ],
    "validation_constants": ["machine", "constant", "unit", "profile_value", "fitted_value"],
}


def write(rows: Iterable[Mapping[str, object]], path: Path, made_by: str) -> Path:
    """Write rows as CSV and what made them as JSON beside it, whole files at a time."""
    frame = pd.DataFrame(list(rows))
    if frame.empty:
        frame = pd.DataFrame(columns=EMPTY[path.stem])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    frame.to_csv(part, index=False, float_format="%.6g")
    part.replace(path)
    note = {"backend": "model", "made_by": made_by, "rows": len(frame), "columns": list(frame.columns)}
    path.with_suffix(".json").write_text(json.dumps(note, indent=1) + "\n")
    return path
