"""Timeline: when each work-group started, had a tile computed, stored it, raised and saw flags; fused against compute-only.

Times are those of each GPU's own global timer, from the first start on that GPU: timers of different GPUs are not aligned. What
tracing costs is measured beside it and stands in the notes.
"""

import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .. import cases, operators, rows
from ..measure import run as measure_run
from ..measure.arms import Bench
from ..measure.sampling import Captured, aligner, sample_all
from . import arms, engine, trace

COLUMNS = (
    "operator", "case", "arm", "backend", "machine", "world_size", "dtype", "rank", "work_group", "event_index", "event",
    "time_us", "status", "reason",
)  # fmt: skip
CAPACITY = 96
SAMPLES = 10


def trace_case(symm: Any, operator: str, case: cases.Case, seed: int) -> dict[str, Any]:
    """Events of one traced call of each arm on this rank, and medians with and without tracing."""
    adapter = operators.get(operator)
    problem = adapter.problem(case, symm.world_size)
    slots = [adapter.operands(problem, case, symm.rank, seed + s, symm.device) for s in range(2)]
    bench = Bench(symm, adapter, case, problem, slots)
    align, stream = aligner(symm), torch.cuda.Stream()
    op = arms._operator(bench)
    found: dict[str, Any] = {}
    for role, make in (("fused", arms.fused_call), ("compute", arms.compute_call)):
        config = op.default_config(problem, symm, role)
        tracing = trace.Tracing(symm, adapter.device_modules[0], CAPACITY)
        times = {}
        for name, rank in (("plain", symm), ("traced", tracing)):
            captured = Captured(make(bench, config, rank), 2, 4, stream)
            captured.estimate_us()
            symm.barrier()
            captured.capture()
            times[name] = median(sample_all({name: captured}, [[name]] * SAMPLES, "graph", align)[name])
        assert tracing.trace is not None
        # One call by itself, all ranks together, on a quiet GPU.
        tracing.trace.zero_()
        single = Captured(make(bench, config, tracing), 2, 1, stream)
        symm.barrier()
        single.capture()
        tracing.trace.zero_()
        torch.cuda.synchronize()
        symm.barrier()
        single.start("graph", align)
        torch.cuda.synchronize()
        found[role] = {"events": tracing.events(), "median_us": times}
    torch.cuda.empty_cache()
    return found


def event_rows(operator: str, case: cases.Case, machine: str, reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tidy rows, times in microseconds from the first start on the same rank."""
    found = []
    for rank, report in enumerate(reports):
        for arm, traced in report.items():
            zero = min(at for *_, at in traced["events"])
            base = {
                "operator": operator, "case": case["case"], "arm": arm, "backend": "gpu", "machine": machine,
                "world_size": len(reports), "dtype": case["dtype"], "rank": rank, "status": "ok", "reason": "",
            }  # fmt: skip
            for work_group, index, event, at in traced["events"]:
                position = {"work_group": work_group, "event_index": index, "event": event}
                found.append(base | position | {"time_us": (at - zero) / 1e3})
    return found


def run(source: Any, machine: str, out: Path, clock: Any) -> bool:
    """Trace the cases of `study_timeline.csv` that `out` does not hold; whether all are done."""
    found: list[dict[str, Any]] = list(rows.read(out, COLUMNS))
    notes = measure_run.read_notes(out)
    done = {(r["operator"], r["case"]) for r in found}
    for operator, case in engine.jobs("timeline"):
        if (operator, case["case"]) in done:
            continue
        if source.agree(clock.left() < 15):
            return False
        start = time.monotonic()
        reports = source.run(trace_case, operator, case, measure_run.case_seed(case), timeout_s=120.0)
        found += event_rows(operator, case, machine, reports)
        medians = {role: [r[role]["median_us"] for r in reports] for role in reports[0]}
        notes["cases"][f"{operator} {case['case']}"] = {"median_us_by_rank": medians}
        if source.writes:
            rows.write(out, found, COLUMNS)
            measure_run.write_notes(out, notes)
            print(f"study timeline: {operator} {case['case']}: {time.monotonic() - start:.0f} s, {medians}", flush=True)
    return True
