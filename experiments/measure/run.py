"""A measuring run: microbenchmarks for the limits, then case after case; every case is written when it is done."""

import json
import re
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import cases, ranks, rows
from ..errors import ExperimentError, require
from . import limits, microbench_operator, program, table

SAMPLES = 30
EAGER_SAMPLES = 8
PROBE_SAMPLES = 10
HEAP_BYTES = 6 << 30
CASE_TIMEOUT_S = 240.0


@dataclass
class Outcome:
    """What a run did: cases measured now, found done, left for the next run, and lines about failures."""

    measured: list[str] = field(default_factory=list)
    done_before: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The run in one line."""
        text = f"{len(self.measured)} cases measured, {len(self.done_before)} found done, {len(self.failures)} failures"
        return text + (f", {len(self.left)} left: run the same command again" if self.left else "")


class Clock:
    """Seconds left of a time limit."""

    def __init__(self, limit_s: float):
        self._end = time.monotonic() + limit_s

    def left(self) -> float:
        return self._end - time.monotonic()


def machine_name(world_size: int) -> str:
    """A name for `world_size` GPUs of this kind: h200-x2."""
    import torch

    name = torch.cuda.get_device_name(0).lower().replace("nvidia", "").replace("amd", "").replace("instinct", "")
    return f"{re.sub('[^a-z0-9]+', '-', name).strip('-')}-x{world_size}"


def case_seed(case: cases.Case) -> int:
    """The seed of a case's data and order: from its name, so that a case has the same data in whatever list it stands."""
    return zlib.crc32(case["case"].encode()) % 1_000_000


def write_notes(path: Path, notes: dict[str, Any]) -> None:
    """What a reader of the rows should know of the run, as JSON beside the CSV; provenance is laid around it."""
    target = path.with_suffix(".json")
    part = target.with_suffix(".json.part")
    part.write_text(json.dumps(notes, indent=1) + "\n")
    part.replace(target)


def read_notes(path: Path) -> dict[str, Any]:
    """The notes of an earlier run into the same file; empty ones if there was none."""
    target = path.with_suffix(".json")
    if not target.is_file():
        return {"runs": [], "cases": {}}
    found = json.loads(target.read_text())
    return found.get("notes", found) or {"runs": [], "cases": {}}


def probe(source: Any, quick: bool, samples: int = PROBE_SAMPLES) -> tuple[list[list[dict[str, Any]]], limits.Rates]:
    """The microbenchmarks of all ranks, and the rates that they give."""
    reports = source.run(program.run_probes, quick, samples, timeout_s=CASE_TIMEOUT_S)
    samples_of = [
        (
            SimpleNamespace(**{k: v for k, v in probes[0].items() if k != "graph"}),
            table.over_ranks([p["graph"] for p in probes]),
        )
        for probes in zip(*reports, strict=True)
    ]
    return reports, limits.from_samples(samples_of)


def microbenchmarks(source: Any, machine: str, out: Path) -> int:
    """All microbenchmarks, written to `out`; how many rows."""
    reports, rates = probe(source, quick=False)
    found = table.probe_rows(microbench_operator, machine, reports)
    rows.write(out, found, rows.TIMING)
    write_notes(out, {"rates": rates.as_dict(), "samples": PROBE_SAMPLES})
    return len(found)


def measure(
    source: Any,
    operator: str,
    jobs: list[cases.Case],
    machine: str,
    out: Path,
    clock: Clock,
    samples: int = SAMPLES,
    eager_samples: int = EAGER_SAMPLES,
    report: Any = print,
    only: tuple[str, ...] = (),
) -> Outcome:
    """Measure `jobs` that `out` does not hold yet, within the clock; each is written when it is done. `only`: arms to time."""
    found: list[dict[str, Any]] = list(rows.read(out, rows.TIMING))
    notes = read_notes(out)
    done = {r["case"] for r in found if r["arm"] != "all"}
    outcome = Outcome(done_before=[c["case"] for c in jobs if c["case"] in done])
    todo = [c for c in jobs if c["case"] not in done]
    found = [r for r in found if r["arm"] != "all"]
    if not todo:
        return outcome
    _, rates = probe(source, quick=True)
    notes["runs"].append(
        {"machine": machine, "rates": rates.as_dict(), "samples": samples, "warm_up_s": program.WARM_UP_S}
    )
    longest = 0.0
    for case in todo:
        # A case is begun only when the slowest one so far would still fit.
        if source.agree(clock.left() < 1.3 * longest + 5):
            outcome.left = [c["case"] for c in todo if c["case"] not in outcome.measured]
            break
        start = time.monotonic()
        try:
            reports = source.run(
                program.run_case, operator, case, samples, eager_samples, case_seed(case), "", only,
                timeout_s=CASE_TIMEOUT_S,
            )  # fmt: skip
        except ExperimentError as error:
            found.append(table.failed_case(operator, case, machine, source.world_size, str(error)))
            rows.write(out, found, rows.TIMING)
            outcome.failures.append(f"{operator}, case {case['case']}: {error}")
            outcome.left = [c["case"] for c in todo if c["case"] not in (*outcome.measured, case["case"])]
            break  # the ranks are gone
        longest = max(longest, time.monotonic() - start)
        new = table.case_rows(operator, case, machine, reports, rates)
        found += new
        notes["cases"][case["case"]] = _case_notes(reports, time.monotonic() - start, len(notes["runs"]) - 1)
        outcome.measured.append(case["case"])
        outcome.failures += [
            f"{operator}, case {r['case']}, arm {r['arm']}: {r['reason']}" for r in new if r["status"] == "failed"
        ]
        if source.writes:
            rows.write(out, found, rows.TIMING)
            write_notes(out, notes)
            report(table.summary(new)[-1])
    return outcome


def _case_notes(reports: list[dict[str, Any]], seconds: float, run: int) -> dict[str, Any]:
    arms = reports[0]["arms"]
    return {
        "run": run,
        "seconds": round(seconds, 1),
        "seed": reports[0]["seed"],
        "slots": reports[0]["slots"],
        "calls_a_graph": {name: arm["calls"] for name, arm in arms.items() if "calls" in arm},
        "worst_check": {
            name: {k: float(f"{arm['check'][k]:.3g}") for k in ("max_abs_error", "bound")}
            for name, arm in arms.items()
            if "check" in arm
        },
        "configs": {name: arm["config"] for name, arm in arms.items() if "config" in arm},
        "health": [r["health"] for r in reports],
        "rank_reduction": "maximum over ranks of each sample",
    }


def selected(operator: str, only: str | None, path: Path | None = None) -> list[cases.Case]:
    """The timing cases of an operator, or the one of a name."""
    found = [c for c in cases.timing(operator, path) if only in (None, c["case"])]
    require(bool(found), "case", only, f"a case of experiments/cases/{operator}.csv")
    return found


def open_source(world_size: int) -> ranks._Ranks:
    """GPU ranks with heaps large enough for every timing case."""
    return ranks.gpus(world_size, HEAP_BYTES)
