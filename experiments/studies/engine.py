"""Running a study: its cases, its arms, tidy rows with the setting in columns of their own, resumable like every measurement."""

import csv
import time
from pathlib import Path
from typing import Any

from .. import cases, rows
from ..errors import ExperimentError, require
from ..measure import program, table
from ..measure import run as measure_run

COLUMNS = (*rows.TIMING, "study", "parameter", "value", "rank")
SAMPLES = 15
FOLDER = cases.FOLDER
ALL_RANKS = -1


def jobs(study: str, path: Path | None = None) -> list[tuple[str, cases.Case]]:
    """(operator, timing case) of each line of `study_<name>.csv`. Raises `ExperimentError` for a line that names none."""
    path = path or FOLDER / f"study_{study}.csv"
    require(path.is_file(), "case file", path.name, "an existing CSV file")
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    require(
        bool(lines) and list(lines[0]) == ["operator", "case"],
        f"columns of {path.name}",
        list(lines[:1]),
        "operator, case",
    )
    found = []
    for number, line in enumerate(lines, start=2):
        known = {c["case"]: c for c in cases.timing(line["operator"])}
        require(
            line["case"] in known,
            f"{path.name}, line {number}: case",
            line["case"],
            f"a case of {line['operator']}.csv",
        )
        found.append((line["operator"], known[line["case"]]))
    return found


def study_rows(
    study: str, operator: str, case: cases.Case, machine: str, reports: list[dict[str, Any]], rates: Any
) -> list[dict[str, Any]]:
    """The rows of `table.case_rows` with setting columns, and for a study of skew each rank's own times too."""
    arms = reports[0]["arms"]
    found = []
    for row in table.case_rows(operator, case, machine, reports, rates):
        if row["mode"] == "graph":
            found.append(row | {"study": study, "rank": ALL_RANKS} | arms[row["arm"]].get("setting", {}))
    if study == "order":
        for row in [r for r in found if "time_us" in r]:
            for rank, report in enumerate(reports):
                time_us = report["arms"][row["arm"]]["graph"][row["sample"]]
                found.append(row | {"rank": rank, "time_us": time_us})
    return found


def run(study: str, source: Any, machine: str, out: Path, clock: Any) -> bool:
    """Measure what `out` does not hold yet, within the clock; whether the study is complete. Raises on wrong results."""
    found: list[dict[str, Any]] = list(rows.read(out, COLUMNS))
    done = {(r["operator"], r["case"]) for r in found}
    todo = [(o, c) for o, c in jobs(study) if (o, c["case"]) not in done]
    if not todo:
        return True
    _, rates = measure_run.probe(source, quick=True)
    notes = measure_run.read_notes(out)
    notes["runs"].append({"machine": machine, "rates": rates.as_dict(), "samples": SAMPLES})
    longest, wrong = 0.0, []
    for operator, case in todo:
        if source.agree(clock.left() < 1.3 * longest + 5):
            return False
        start = time.monotonic()
        reports = source.run(
            program.run_case, operator, case, SAMPLES, 0, measure_run.case_seed(case), study, timeout_s=240.0
        )
        longest = max(longest, time.monotonic() - start)
        new = study_rows(study, operator, case, machine, reports, rates)
        found += new
        wrong += [r for r in new if r["status"] == "failed"]
        notes["cases"][f"{operator} {case['case']}"] = {
            "slots": reports[0]["slots"],
            "health": [r["health"] for r in reports],
        }
        if source.writes:
            rows.write(out, found, COLUMNS)
            measure_run.write_notes(out, notes)
            print(f"study {study}: {operator} {case['case']}: {len(new)} rows", flush=True)
    if wrong:
        raise ExperimentError(f"study {study}, case {wrong[0]['case']}, arm {wrong[0]['arm']}: {wrong[0]['reason']}")
    return True
