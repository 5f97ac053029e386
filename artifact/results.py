"""The schema of all result files: tidy CSV, one kind a file, units in the column names. Read and written here, whole or not at all."""

from pathlib import Path

import pandas as pd
import pandera.pandas as pa
from pandera.errors import SchemaErrors

from .errors import ArtifactError, require
from .files import replacing
from .vocabulary import BACKENDS, FACES, MODES, STATUS


def _text(allowed: tuple[str, ...] = (), empty: bool = False) -> pa.Column:
    """A text cell: one of `allowed`, or any that is not empty unless `empty`."""
    if allowed:
        return pa.Column(str, pa.Check.isin(allowed))
    return pa.Column(str, [] if empty else [pa.Check.str_length(min_value=1, error="must not be empty")])


def _number(minimum: float | None = 0.0, nullable: bool = True) -> pa.Column:
    """A real number; an empty cell when there is none (a failed or missing case)."""
    return pa.Column(float, [] if minimum is None else [pa.Check.ge(minimum)], nullable=nullable)


def _count(minimum: int = 0, nullable: bool = True) -> pa.Column:
    """A whole number; an empty cell when there is none."""
    return pa.Column("Int64", [pa.Check.ge(minimum)], nullable=nullable)


def _schema(**columns: pa.Column) -> pa.DataFrameSchema:
    return pa.DataFrameSchema(columns, coerce=True, strict=False)


_MODEL = {
    "operator": _text(),
    "case": _text(),
    "machine": _text(),
    "backend": _text(("model",)),
    "world_size": _count(1, False),
}
_SCALE_OUT = {
    "backend": _text(("model",)), "machine": _text(), "workload": _text(), "topology": _text(), "nodes": _count(1, False),
    "scaling": _text(("weak", "strong", "growing")), "scope": _text(),
}  # fmt: skip

KINDS: dict[str, pa.DataFrameSchema] = {
    # One row a sample of one arm on one case: time_us is the maximum over ranks.
    "timing": _schema(
        operator=_text(), case=_text(), arm=_text(), strategy=_text(), face=_text(FACES), mode=_text(MODES),
        backend=_text(BACKENDS), machine=_text(), world_size=_count(1, False), dtype=_text(), sample=_count(),
        time_us=_number(), limit_us=_number(), bytes_read=_number(), bytes_sent=_number(), flops=_number(),
        status=_text(STATUS), reason=_text(empty=True),
    ),
    # One row a case, rank and call.
    "verify": _schema(
        operator=_text(), case=_text(), strategy=_text(), transport=_text(), dtype=_text(), world_size=_count(1, False),
        call=_count(), seed=_count(), rank=_count(-1), max_abs_error=_number(), bound=_number(), remote_stores=_count(),
        flags_delivered=_count(), status=_text(("ok", "failed", "missing")), reason=_text(empty=True),
    ),
    # One row an event of a work-group in one traced call; time_us counts from the first start on the same rank.
    "timeline": _schema(
        operator=_text(), case=_text(), arm=_text(), backend=_text(("gpu",)), machine=_text(), world_size=_count(1, False),
        dtype=_text(), rank=_count(0, False), work_group=_count(), event_index=_count(), event=_text(), time_us=_number(),
        status=_text(STATUS), reason=_text(empty=True),
    ),
    # One row a kernel and target of the ahead-of-time build; `occupancy` is a share of the warp slots (percent by x 100).
    "resources": _schema(
        kernel=_text(), operator=_text(), role=_text(), dtype=_text(), target=_text(), num_warps=_count(1),
        registers=_count(), agprs=_count(), sgprs=_count(), spills=_count(), shared_bytes=_count(), stack_bytes=_count(),
        occupancy=_number(), limited_by=_text(empty=True), status=_text(STATUS), reason=_text(empty=True), triton_version=_text(empty=True),
    ),
    # One row a mutant and detector; `races`, the whole adversary, decides, the others are controls ("caught" or "survived").
    "campaign": _schema(
        kernel=_text(), mutant=_text(), change=_text(empty=True), detector=_text(("races", "weak", "stale", "late", "sc")),
        verdict=_text(("caught", "equivalent", "clean", "skipped", "survived", "false report")), seed=_count(), seeds_tried=_count(0, False),
        time_s=_number(0.0, False), report=_text(empty=True), reason=_text(empty=True),
    ),
    "operators": _schema(operator=_text(), torch_operator=_text(), face=_text(FACES), signature=_text()),
    "reduction": _schema(
        **_MODEL, bulk_us=_number(), fused_us=_number(), reduction_percent=_number(None), low_percent=_number(None), high_percent=_number(None)
    ),
    "sensitivity": _schema(**_MODEL, strategy=_text(), link_scale=_number(), memory_scale=_number(), launch_scale=_number(), time_us=_number()),
    "skew": _schema(**_MODEL, order=_text(("remote_first", "oblivious")), late_us=_number(), rank=_count(), end_us=_number(), skew_percent=_number()),
    "occupancy": _schema(**_MODEL, strategy=_text(), occupancy_percent=_number(), wgs_per_cu=_count(), time_us=_number()),
    "traffic": _schema(**_MODEL, strategy=_text(), time_us=_number(), link_gbps=_number()),
    "assumptions": _schema(**_MODEL, assumption=_text(), bulk_us=_number(), fused_us=_number(), reduction_percent=_number(None)),
    "scaleout": _schema(**_SCALE_OUT, scenario=_text(), strategy=_text(), component=_text(), time_us=_number(None)),
    "scaleout_reduction": _schema(**_SCALE_OUT, scenario=_text(), bulk_us=_number(), fused_us=_number(), reduction_percent=_number(None)),
    "scaleout_sweep": _schema(
        **_SCALE_OUT, pooling=_number(), mlp_width=_number(), bulk_us=_number(), fused_us=_number(), reduction_percent=_number(None)
    ),
    "validation": _schema(
        backend=_text(("model",)), machine=_text(), operator=_text(), case=_text(), strategy=_text(), world_size=_count(1, False), dtype=_text(),
        half=_text(("fit", "judge")), measured_us=_number(), predicted_us=_number(), error_percent=_number(None),
    ),
    "validation_constants": _schema(machine=_text(), constant=_text(), unit=_text(empty=True), profile_value=_number(None), fitted_value=_number(None)),
    "validation_summary": _schema(backend=_text(("model",)), half=_text(), machine=_text(), points=_count(), status=_text(STATUS), verdict=_text()),
    # What a machine profile or a simulation assumes: free columns beside the machine's name.
    "machine_profiles": _schema(machine=_text()),
    "simulation_setup": _schema(),
}  # fmt: skip


def validate(frame: pd.DataFrame, kind: str, name: str) -> pd.DataFrame:
    """`frame` with typed columns.

    Raises `ArtifactError` that names file, column, row and value of the first cell that does not fit.
    """
    require(kind in KINDS, "kind of result file", kind, ", ".join(KINDS))
    schema = KINDS[kind]
    missing = [c for c in schema.columns if c not in frame.columns]
    if missing:
        raise ArtifactError(f"{name}: column {missing[0]} is missing; a {kind} file has {', '.join(schema.columns)}")
    frame = frame.copy()
    for column, spec in schema.columns.items():
        if not str(spec.dtype).startswith("str"):
            frame[column] = frame[column].replace("", None)
        else:
            frame[column] = frame[column].fillna("").astype(str)
    try:
        return schema.validate(frame, lazy=True)
    except SchemaErrors as errors:
        raise ArtifactError(f"{name}: {_first(errors.failure_cases, schema)}") from None


def _first(failures: pd.DataFrame, schema: pa.DataFrameSchema) -> str:
    """The first failing cell, in one line."""
    found = failures.dropna(subset=["index"]) if failures["index"].notna().any() else failures
    row = found.sort_values("index", kind="stable").iloc[0]
    column, check, value = row["column"], str(row["check"]), row["failure_case"]
    value = getattr(value, "item", lambda: value)()
    if "dtype" in check or "nullable" in check:
        expected = {"f": "a number", "I": "a whole number"}.get(str(schema.columns[column].dtype)[:1], "text")
    else:
        expected = check.replace("isin(", "one of (").replace("greater_than_or_equal_to", "at least ")
    line = "" if pd.isna(row["index"]) else f", line {int(row['index']) + 2}"
    return f"column {column}{line} is {value!r}; expected {expected}"


def read(path: Path, kind: str) -> pd.DataFrame:
    """Rows of a result file, typed and checked.

    Raises `ArtifactError`, one line, when the file is missing, not CSV, or a cell does not fit its column.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise ArtifactError(f"{path} is not a CSV file: {str(error).splitlines()[0]}") from None
    return validate(frame, kind, str(path))


def write(frame: pd.DataFrame, path: Path, kind: str) -> Path:
    """Check rows and write them as tidy CSV, atomically."""
    checked = validate(frame, kind, str(path))
    with replacing(path) as part:
        checked.to_csv(part, index=False, lineterminator="\n", float_format="%.6g")
    return path


def counted(frame: pd.DataFrame) -> str:
    """How many rows have which status, in words: "40 ok, 1 failed"."""
    counts = frame["status"].value_counts()
    return ", ".join(f"{counts[s]} {s}" for s in STATUS if s in counts) or "no rows"
