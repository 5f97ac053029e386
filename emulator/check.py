"""`python -m emulator check FILE::FUNCTION`: a program of several ranks under many schedules, in replay mode.

Exits 0 if no schedule reports anything, 1 with the first finding, shrunk, and the command that shows it again, 2 when the program or
an option is wrong.
"""

import argparse
import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import files
from .errors import EmulatorError
from .explore import explore
from .memory_model import MODES
from .replay import PERSONALITIES, ReplayOptions
from .verdicts import Exploration, Verdict

_DEFAULTS = ReplayOptions()


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "program", metavar="FILE::FUNCTION", help="called as function(symm, *args), once a rank; or module:function"
    )
    parser.add_argument("--args", default="[]", metavar="JSON", help="list of further arguments (default [])")
    parser.add_argument("--world", type=int, default=2, metavar="N", help="ranks (default 2)")
    parser.add_argument(
        "--resident",
        type=int,
        default=_DEFAULTS.resident,
        metavar="R",
        help="work-groups of a rank at a time (default %(default)s)",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="schedules (default 200)")
    parser.add_argument("--first", type=int, metavar="S", help="first seed (default 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="this schedule only")
    parser.add_argument(
        "--schedulers",
        type=_names,
        default=(),
        metavar="NAME,...",
        help=f"of {', '.join(PERSONALITIES)} (default: each seed picks)",
    )
    parser.add_argument(
        "--memory", choices=MODES, default=_DEFAULTS.memory, help="part of the adversary (default %(default)s: all)"
    )
    parser.add_argument(
        "--no-races", action="store_true", help="without the race detector: only wrong values, hangs, bad addresses"
    )
    parser.add_argument(
        "--no-poison", action="store_true", help="reading symmetric memory that nobody has written is no finding"
    )
    parser.add_argument(
        "--ignore", type=_names, default=(), metavar="BUFFER,...", help="buffers that are racy on purpose"
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=_DEFAULTS.max_steps,
        metavar="N",
        help="operations until a livelock (default %(default)s)",
    )
    parser.add_argument("--heap-bytes", type=int, metavar="N", help="symmetric heap of a rank (default 64 MiB)")
    parser.add_argument("--no-shrink", action="store_true", help="print the finding as it came")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes side by side (default: cores)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict there too")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _asked(arguments: argparse.Namespace) -> Exploration:
    if arguments.seed is not None and not (arguments.seeds is None and arguments.first is None):
        raise EmulatorError(f"--seed is {arguments.seed}; allowed: without --seeds and --first")
    try:
        args = json.loads(arguments.args)
    except json.JSONDecodeError:
        args = None
    if not isinstance(args, list):
        raise EmulatorError(f"--args is {arguments.args!r}; allowed: a list in JSON, such as '[4, \"sum\"]'")
    if arguments.seed is not None:
        first, seeds = arguments.seed, 1
    else:
        first = 0 if arguments.first is None else arguments.first
        seeds = 200 if arguments.seeds is None else arguments.seeds
    return Exploration(
        program=arguments.program, world_size=arguments.world, args=tuple(args), first=first, seeds=seeds,
        schedulers=arguments.schedulers, heap_bytes=arguments.heap_bytes, shrink=not arguments.no_shrink,
        options={
            "resident": arguments.resident, "memory": arguments.memory, "races": not arguments.no_races,
            "poison": not arguments.no_poison, "ignore": arguments.ignore, "max_steps": arguments.max_steps,
        },
    )  # fmt: skip


def replay_command(verdict: Verdict) -> str:
    """The command that runs the schedule of the finding, and nothing else."""
    asked, finding, options = verdict.asked, verdict.finding, verdict.asked.options
    words = ["python", "-m", "emulator", "check", asked.program, "--seed", finding.seed, "--world", asked.world_size]
    words += ["--resident", options["resident"]]
    values = {
        "--args": json.dumps(asked.args) if asked.args else None, "--schedulers": finding.scheduler,
        "--memory": options["memory"] if options["memory"] != _DEFAULTS.memory else None, "--ignore": ",".join(options["ignore"]) or None,
        "--max-steps": options["max_steps"] if options["max_steps"] != _DEFAULTS.max_steps else None, "--heap-bytes": asked.heap_bytes,
    }  # fmt: skip
    for name, value in values.items():
        words += [] if value is None else [name, value]
    words += [f"--no-{name}" for name in ("races", "poison") if not options[name]]
    return shlex.join(map(str, words))


def _document(verdict: Verdict) -> dict[str, Any]:
    """The verdict for JSON."""
    found = verdict.finding
    return {
        **asdict(verdict), "clean": found is None,
        "finding": None if found is None else {**asdict(found), "replay": replay_command(verdict)},
    }  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Explore and tell; the exit status."""
    asked = _asked(arguments)
    console = Console(stderr=True)
    columns = (TextColumn(asked.program, markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=asked.seeds)
        verdict = explore(asked, arguments.jobs, lambda seeds: bar.advance(task, seeds))
    if arguments.json is not None:
        files.write(arguments.json, json.dumps(_document(verdict), indent=1) + "\n", "--json")
    what = f"{verdict.seeds_run} schedules of {asked.program} on {asked.world_size} ranks in {verdict.time_s:.1f} s"
    if verdict.finding is None:
        print(f"clean: {what}, no report")
        return 0
    print(verdict.finding)
    print(f"digest: {verdict.finding.digest}")
    print(f"replay: {replay_command(verdict)}")
    print(f"finding: {what}")
    return 1
