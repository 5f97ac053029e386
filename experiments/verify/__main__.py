"""`python -m experiments.verify`: run correctness cases on a backend, write one row per case, rank and call.

Exits 1 when a case fails, naming operator, case, rank, call and seed; 2 when an option or a case file is wrong.
"""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from .. import cases, operators, ranks, rows
from ..errors import ExperimentError, require
from . import backends, faults, graphs

HEARTBEAT = 20  # cases between two lines where there is no terminal to draw progress on


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m experiments.verify", description=__doc__.splitlines()[0])
    p.add_argument(
        "--backend", choices=ranks.BACKENDS, default="emulator", help="gpu-virtual: several virtual ranks on one GPU"
    )
    size = p.add_mutually_exclusive_group()
    size.add_argument("--sample", action="store_true", help="the stratified sample of cases (default)")
    size.add_argument("--full", action="store_true", help="all cases")
    p.add_argument("--operator", action="append", choices=cases.OPERATORS, help="only this operator; may be repeated")
    p.add_argument("--world", type=int, help="only cases of this world size")
    p.add_argument("--case", help="only the case of this name")
    p.add_argument("--cases", type=Path, help="another case file, for one --operator")
    p.add_argument(
        "--graph-replays",
        type=int,
        default=0,
        metavar="N",
        help="GPUs: capture one call, replay it N times with new inputs",
    )
    p.add_argument(
        "--fault", choices=sorted(faults.FAULTS), default="", help="emulator: break the kernels on purpose; must fail"
    )
    p.add_argument("--out", type=Path, required=True, help="CSV file to write")
    return p


def selected(options: argparse.Namespace) -> list[tuple[str, cases.Case]]:
    """The jobs that the options name, by world size. Raises `ExperimentError` if there is none."""
    chosen = tuple(options.operator or cases.OPERATORS)
    require(options.cases is None or len(chosen) == 1, "--cases", str(options.cases), "with one --operator")
    possible = ranks.world_sizes(options.backend)
    sample = not options.full and options.case is None  # a case that is named need not be one of the sample
    jobs = [
        (operator, case)
        for operator in chosen
        for case in cases.verification(operator, sample, options.world, options.cases)
        if case["world_size"] in possible and options.case in (None, case["case"])
    ]
    require(
        bool(jobs), "selection", options.case or f"world {options.world}", f"a case that {options.backend} can run here"
    )
    return sorted(jobs, key=lambda job: job[1]["world_size"])


def row(operator: str, case: cases.Case, record: dict[str, Any]) -> dict[str, Any]:
    """A tidy row from one rank's record of one call."""
    strategy, transport = operators.get(operator).labels(case)
    return {
        "operator": operator,
        "case": case["case"],
        "strategy": strategy,
        "transport": transport,
        "dtype": case["dtype"],
        "world_size": case["world_size"],
        **{c: record.get(c) for c in rows.VERIFY if c in record},
        "status": "ok" if record["ok"] else "missing" if record.get("missing") else "failed",
    }


def broken(case: cases.Case, reason: str) -> dict[str, Any]:
    """A record for a case that gave none: a rank raised, died or hung. `rank` is the first that the reason names, or -1."""
    named = re.search(r"\brank (\d+)", reason)
    rank = int(named[1]) if named else -1
    return {"call": 0, "seed": case["seed"] * 1000, "rank": rank, "ok": False, "reason": reason}


def line(found: dict[str, Any]) -> str:
    """One failure, with everything that is needed to run it again."""
    error = (
        ""
        if found.get("max_abs_error") is None
        else f", max error {found['max_abs_error']:.3g}, bound {found['bound']:.3g}"
    )
    return (
        f"failed: {found['operator']}, case {found['case']}, rank {found['rank']}, call {found['call']}, "
        f"seed {found['seed']}{error}: {found['reason']}"
    )


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    require(
        not options.fault or options.backend == "emulator",
        "--fault",
        options.fault,
        "the emulator only: a GPU would hang",
    )
    require(
        not options.graph_replays or options.backend != "emulator",
        "--graph-replays",
        options.graph_replays,
        "GPUs only",
    )
    jobs = selected(options)
    if options.graph_replays:
        jobs = [(o, c) for o, c in jobs if graphs.suits(c)]
        require(bool(jobs), "--graph-replays", options.graph_replays, "a selection with cases of fixed shapes")
    found: list[dict[str, Any]] = []
    start, done = time.monotonic(), 0
    work, extra = (graphs.run, (options.graph_replays,)) if options.graph_replays else (backends.program.run, ())

    def hung(operator: str, case: cases.Case) -> None:
        found.append(row(operator, case, broken(case, "hang: no answer from the GPU")))
        rows.write(options.out, found, rows.VERIFY)
        print(line(found[-1]), file=sys.stderr, flush=True)

    with _progress() as progress:
        task = progress.add_task("verify", total=len(jobs))
        for world in sorted({c["world_size"] for _, c in jobs}):
            batch = [(o, c) for o, c in jobs if c["world_size"] == world]
            reasons = {c["case"]: backends.unavailable(options.backend, world, c) for _, c in batch}
            found += [
                row(o, c, broken(c, reasons[c["case"]]) | {"missing": True}) for o, c in batch if reasons[c["case"]]
            ]
            batch = [(o, c) for o, c in batch if not reasons[c["case"]]]
            for operator, case, records, reason in backends.run(
                options.backend, world, batch, options.fault, work, hung, extra
            ):
                progress.update(task, advance=1, description=f"{operator} {case['case']}")
                new = [row(operator, case, r) for r in (records if not reason else [broken(case, reason)])]
                found += new
                done += 1
                if not ranks.is_writer():
                    continue
                rows.write(options.out, found, rows.VERIFY)
                if progress.disable and done % HEARTBEAT == 0:
                    print(
                        f"verify: {done} of {len(jobs)} cases, {time.monotonic() - start:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                for failure in [r for r in new if r["status"] == "failed"][:1]:
                    print(line(failure), file=sys.stderr, flush=True)
    failed = {(r["operator"], r["case"]) for r in found if r["status"] == "failed"}
    missing = sum(r["status"] == "missing" for r in found)
    if not ranks.is_writer():
        return 1 if failed else 0
    print(
        f"verify: backend {options.backend}, {len(jobs)} cases, {len(found)} rows, {len(failed)} failed"
        + (f", {missing} cannot run here" if missing else "")
        + f", {time.monotonic() - start:.0f} s, {options.out}"
    )
    return 1 if failed else 0


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:40.40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ExperimentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
