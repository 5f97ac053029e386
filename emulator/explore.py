"""Many schedules of one program, until a seed reports something. Runs in a process that interprets kernels."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .errors import EmulatorError
from .forks import Lost, forked
from .processes.programs import find, name_of
from .replay import Replayer, ReplayOptions, ReplayResult, shrink
from .replay.report import root_cause
from .verdicts import Exploration, Finding, Verdict, sources_digest

TRACE = 200
_FOR_EVER_S = 1e6
_LEAST_SEEDS = 50  # of a process: a program's record is cold at first

Progress = Callable[[int], Any]


class _Scanned(NamedTuple):
    seeds_run: int
    finding: Finding | None
    sources: str


def explore(asked: Exploration, jobs: int = 1, progress: Progress = lambda seeds: None) -> Verdict:
    """Run the seeds in order until one reports; the same finding however many processes look.

    progress: told of every batch of seeds that is done, how many.
    Raises `EmulatorError`, one line, for whatever is no finding: a program that cannot be loaded or that raises without any
    adversary, options that are not allowed.
    """
    for name, least in (("world_size", 1), ("first", 0), ("seeds", 1)):
        if getattr(asked, name) < least:
            raise EmulatorError(f"{name} is {getattr(asked, name)}; allowed: {least} or more")
    if jobs < 1:
        raise EmulatorError(f"jobs is {jobs}; allowed: 1 or more")
    for scheduler in asked.schedulers or (None,):
        _options(asked, scheduler)
    torch.set_num_threads(1)
    load(asked.program)  # children inherit it
    began = time.monotonic()
    seeds = range(asked.first, asked.first + asked.seeds)
    if jobs == 1 or len(seeds) <= _LEAST_SEEDS:
        scanned = _scan(asked, seeds, progress)
    else:
        scanned = _side_by_side(asked, seeds, jobs, progress)
    return Verdict(asked, scanned.seeds_run, round(time.monotonic() - began, 3), scanned.finding, scanned.sources)


def _side_by_side(asked: Exploration, seeds: range, jobs: int, progress: Progress) -> _Scanned:
    """Batches in forked children; ends when all seeds below the first finding are done."""
    import torch._dynamo  # noqa: F401 (torch imports it, in seconds, under a dispatch mode: once, not in every child)

    size = max(_LEAST_SEEDS, -(-len(seeds) // (8 * jobs)))
    batches = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    done: dict[int, _Scanned | Lost] = {}
    for index, answer in forked([partial(_scan, asked, batch) for batch in batches], jobs, _FOR_EVER_S):
        done[index] = answer
        if isinstance(answer, _Scanned):
            progress(answer.seeds_run)
        # The earliest seeds decide, however soon later ones were done.
        first = min((i for i, a in done.items() if isinstance(a, Lost) or a.finding is not None), default=None)
        if first is not None and all(i in done for i in range(first)):
            break
    last = done[max(done) if first is None else first]
    if isinstance(last, Lost):
        raise last.error or EmulatorError(f"seeds {batches[first]}: {last.why}")
    seeds_run = sum(scanned.seeds_run for scanned in done.values() if isinstance(scanned, _Scanned))
    return _Scanned(seeds_run, last.finding, last.sources)


def _scan(asked: Exploration, seeds: Iterable[int], progress: Progress = lambda seeds: None) -> _Scanned:
    """Seeds in order until one reports."""
    sizes = {} if asked.heap_bytes is None else {"heap_bytes": asked.heap_bytes}
    replayer = Replayer(load(asked.program), asked.world_size, asked.args, **sizes)
    run, finding = 0, None
    for seed in seeds:
        options = _options(asked, asked.scheduler(seed))
        result = replayer.run(seed, options)
        run += 1
        progress(1)
        if not result.ok:
            finding = _finding(replayer, asked, result, options)
            break
    return _Scanned(run, finding, sources_digest())


def _options(asked: Exploration, scheduler: str | None) -> ReplayOptions:
    return ReplayOptions(**{"personality": scheduler, **asked.options})


def _finding(replayer: Replayer, asked: Exploration, failed: ReplayResult, options: ReplayOptions) -> Finding:
    report = failed.reports[0]
    kind = report.kind
    if report.error is not None:
        if isinstance(root_cause(report.error), AssertionError):
            kind = "result"
        else:
            tame = replace(options, memory="sc", races=False, personality="round_robin")
            if any(report.alike(r) for r in replayer.run(failed.seed, tame).reports):
                raise EmulatorError(
                    f"program is {asked.program!r}: {' '.join(report.text.split())} (without any adversary too)"
                )
    was = now = None
    if asked.shrink:
        small = shrink(replayer, failed, options, trace=TRACE)
        report, trace, was, now = small.report or report, small.story(), small.was, small.now
    else:
        trace = replayer.run(failed.seed, replace(options, trace=TRACE)).trace
    return Finding(
        failed.seed, asked.scheduler(failed.seed), failed.digest, kind, report.text, report.sites, report.details, tuple(trace), was, now
    )  # fmt: skip


def load(program: str) -> Callable[..., Any]:
    """The program. Modules beside its file can be imported by name, as if the file were run."""
    path, double, _ = name_of(program).partition("::")
    folder = str(Path(path).resolve().parent)
    if double and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return find(program)
    except EmulatorError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise EmulatorError(
            f"program is {program!r}, which cannot be imported: {type(error).__name__}: {text}"
        ) from error
