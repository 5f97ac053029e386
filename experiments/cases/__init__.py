"""Case lists: what is verified and what is measured, as CSV files that were fixed before anything was tuned.

`<operator>.csv` are timing cases, one row a shape of a published model; `verify_<operator>.csv` are correctness cases. The
tables below say which columns a file has and what each may hold; a row outside of that is refused with one line.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.plan import ORDERS

from ..errors import ExperimentError, require

FOLDER = Path(__file__).parent
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
WORLD_SIZES = (1, 2, 4, 8)
DTYPES = ("float32", "bfloat16", "float16")

Case = dict[str, Any]
Parser = Callable[[str], Any]


def _text(cell: str) -> str:
    if not cell:
        raise ValueError("some text")
    return cell


def _whole(low: int, high: int = 2**40) -> Parser:
    def parse(cell: str) -> int:
        if not (cell.isascii() and cell.isdigit() and low <= int(cell) <= high):
            raise ValueError(f"a whole number from {low}" + (f" to {high}" if high < 2**40 else ""))
        return int(cell)

    return parse


def _one_of(*allowed: object) -> Parser:
    table = {str(a): a for a in allowed}

    def parse(cell: str) -> Any:
        if cell not in table:
            raise ValueError(", ".join(table))
        return table[cell]

    return parse


_FLAG = _one_of(0, 1)
_TIMING: dict[str, Parser] = {"case": _text, "model": _text, "source": _text, "dtype": _one_of(*DTYPES)}
_VERIFY: dict[str, Parser] = {
    "case": _text,
    "dtype": _one_of(*DTYPES),
    "world_size": _one_of(*WORLD_SIZES),
    "calls": _whole(1, 256),
    "skew_us": _whole(0, 100_000),
    "changing": _FLAG,
    "seed": _whole(0),
    "sample": _FLAG,
    "order": _one_of(*ORDERS),
}
_GEMV = {"m": _whole(1), "k": _whole(1), "batch": _whole(1, 8)}
_EMBEDDING = {"global_batch": _whole(1), "tables": _whole(1), "rows": _whole(1), "dim": _whole(1), "pooling": _whole(0)}
_EMBEDDING |= {"bags": _one_of("fixed", "ragged")}
_GEMM = {
    "m": _whole(1),
    "n": _whole(1),
    "k": _whole(1),
    "experts": _whole(1),
    "split": _one_of("even", "uneven", "empty", "one"),
}
_INDEX = _one_of("int32", "int64")
_TRANSPORT = {"transport": _one_of("peer", "rdma", "staged"), "fenced": _FLAG}

SCHEMAS: dict[str, dict[str, Parser]] = {
    "gemv_all_reduce": _TIMING | _GEMV,
    "embedding_all_to_all": _TIMING | _EMBEDDING,
    "gemm_all_to_all": _TIMING | _GEMM,
    "verify_gemv_all_reduce": _VERIFY
    | _GEMV
    | {
        "algorithm": _one_of("two_phase", "one_shot"),
        "transport": _one_of("peer", "rdma"),
        "bias": _FLAG,
        "residual": _FLAG,
        "fenced": _FLAG,
    },
    "verify_embedding_all_to_all": _VERIFY
    | _EMBEDDING
    | {"mode": _one_of("sum", "mean"), "weighted": _FLAG, "index_dtype": _INDEX}
    | _TRANSPORT,
    "verify_gemm_all_to_all": _VERIFY | _GEMM | {"scaled": _FLAG} | _TRANSPORT,
}


def read(path: Path, schema: dict[str, Parser]) -> list[Case]:
    """The cases of one file. Raises `ExperimentError`: which file, row, column, value and what is allowed, in one line."""
    require(path.is_file(), "case file", path.name, "an existing CSV file")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or [])
        require(sorted(columns) == sorted(schema), f"columns of {path.name}", ", ".join(columns), ", ".join(schema))
        rows = list(reader)
    require(bool(rows), f"rows of {path.name}", 0, "at least one")
    cases: list[Case] = []
    for number, row in enumerate(rows, start=2):
        where = f"{path.name}, line {number}"
        require(None not in row and None not in row.values(), where, "a row of another length", f"{len(columns)} cells")
        case = {}
        for column, parse in schema.items():
            try:
                case[column] = parse(row[column].strip())
            except ValueError as error:
                raise ExperimentError(f"{where}: {column} is {row[column]!r}; allowed: {error}") from None
        cases.append(case)
    names = [c["case"] for c in cases]
    twice = sorted({n for n in names if names.count(n) > 1})
    require(not twice, f"case in {path.name}", twice[0] if twice else "", "each name once")
    return cases


def timing(operator: str, path: Path | None = None) -> list[Case]:
    """Timing cases of an operator."""
    require(operator in OPERATORS, "operator", operator, ", ".join(OPERATORS))
    return read(path or FOLDER / f"{operator}.csv", SCHEMAS[operator])


def verification(operator: str, sample: bool, world_size: int | None = None, path: Path | None = None) -> list[Case]:
    """Correctness cases of an operator: the stratified sample or all of them, of one world size or of all."""
    require(operator in OPERATORS, "operator", operator, ", ".join(OPERATORS))
    require(world_size is None or world_size in WORLD_SIZES, "world_size", world_size, "1, 2, 4 or 8")
    cases = read(path or FOLDER / f"verify_{operator}.csv", SCHEMAS[f"verify_{operator}"])
    return [c for c in cases if (c["sample"] or not sample) and world_size in (None, c["world_size"])]
