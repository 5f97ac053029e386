"""`python -m experiments.measure`: time all arms of an operator's cases on the GPUs there are.

Ends within --time-limit, writes each case when it is done, and goes on where it stopped when it is run again. Exits 1 when
an arm gave a wrong result, 75 when cases are left for another run, 2 when an option is wrong.
"""

import argparse
import sys
from pathlib import Path

from .. import cases, ranks
from ..errors import ExperimentError, require
from . import microbench_operator, run

INCOMPLETE = 75  # EX_TEMPFAIL


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m experiments.measure", description=__doc__.splitlines()[0])
    p.add_argument("--operator", required=True, choices=(*cases.OPERATORS, microbench_operator))
    p.add_argument("--world", type=int, help="ranks, a GPU each (default: all GPUs that make 1, 2, 4 or 8)")
    p.add_argument("--case", help="only the case of this name")
    p.add_argument("--cases", type=Path, help="another case file")
    p.add_argument("--machine", help="name of this machine in the rows (default: GPU model and number)")
    p.add_argument("--samples", type=int, default=run.SAMPLES)
    p.add_argument("--eager-samples", type=int, default=run.EAGER_SAMPLES)
    p.add_argument("--time-limit", type=float, default=480.0, metavar="SECONDS")
    p.add_argument("--out", type=Path, required=True, help="CSV file to write or to go on with")
    return p


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    clock = run.Clock(options.time_limit)
    possible = ranks.world_sizes("gpu")
    require(bool(possible), "GPUs", 0, "1 or more")
    world = options.world or max(possible)
    require(world in possible, "--world", world, ", ".join(map(str, possible)))
    require(options.samples >= 6, "--samples", options.samples, "6 or more: fewer have no 95 % interval")
    jobs = (
        [] if options.operator == microbench_operator else run.selected(options.operator, options.case, options.cases)
    )
    machine = options.machine or run.machine_name(world)
    with run.open_source(world) as source:
        if not jobs:
            print(
                f"measure: {run.microbenchmarks(source, machine, options.out)} rows of microbenchmarks, {options.out}"
            )
            return 0
        outcome = run.measure(
            source, options.operator, jobs, machine, options.out, clock, options.samples, options.eager_samples
        )
    for failure in outcome.failures if source.writes else ():
        print(f"failed: {failure}", file=sys.stderr)
    if source.writes:
        print(f"measure: {options.operator} on {machine}: {outcome.line()}, {options.out}")
    return 1 if outcome.failures else INCOMPLETE if outcome.left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ExperimentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
