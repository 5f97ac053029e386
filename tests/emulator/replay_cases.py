"""What the tests of replay mode run in the process that interprets kernels."""

import functools
import time
from dataclasses import replace
from typing import Any

from emulator.processes.programs import find
from emulator.replay import Replayer, ReplayOptions, ReplayResult, shrink
from tests.emulator import replay_kernels


def call(symm: object, name: str, args: tuple, how: dict[str, Any]) -> Any:
    """The function of that name in this module (`symm` is the lone rank of the process that interprets)."""
    return globals()[name](*args, **how)


_replayers: dict[tuple, Replayer] = {}


def replayer(program: str, world_size: int, how: dict[str, Any]) -> Replayer:
    """One a program, so that records are shared."""
    key = (program, world_size, tuple(sorted(how.items())))
    if key not in _replayers:
        function = find(program) if ":" in program else getattr(replay_kernels, program)
        _replayers[key] = Replayer(functools.partial(function, **how), world_size, heap_bytes=1 << 20)
    return _replayers[key]


def portable(result: ReplayResult) -> ReplayResult:
    return replace(result, reports=tuple(replace(r, error=None) for r in result.reports))


def runs(
    program: str, seeds: int = 20, world_size: int = 2, options: dict | None = None, first: int = 0, **how: Any
) -> list[ReplayResult]:
    """Results of `seeds` runs, stopping early at nothing."""
    there, options = replayer(program, world_size, how), ReplayOptions(**(options or {}))
    return [portable(there.run(seed, options)) for seed in range(first, first + seeds)]


def shrunk(program: str, seed: int, world_size: int = 2, options: dict | None = None, **how: Any) -> dict[str, Any]:
    """A failing run, shrunk, and the run that its decisions give."""
    there, options = replayer(program, world_size, how), ReplayOptions(**(options or {}))
    failed = there.run(seed, options)
    small = shrink(there, failed, options)
    again = there.run(seed, replace(options, decisions=small.decisions))
    return {
        "text": str(small), "was": small.was, "now": small.now, "runs": small.runs, "kept": len(small.decisions), "report": small.report.text,
        "first": failed.reports[0].text, "again": [r.text for r in again.reports], "same_digest": again.digest == small.result.digest,
        "trace": small.result.trace,
    }  # fmt: skip


def replays(program: str, seeds: int, world_size: int = 2, **how: Any) -> list[tuple[str, str]]:
    """(digest of a run, digest of the run with that run's decisions instead of its seed)."""
    there = replayer(program, world_size, how)
    pairs = []
    for seed in range(seeds):
        run = there.run(seed)
        pairs.append((run.digest, there.run(12345, ReplayOptions(decisions=run.decisions)).digest))
    return pairs


def speed(program: str, seeds: int, world_size: int = 2, **how: Any) -> float:
    """Schedules a second of processor time, records warm."""
    there = replayer(program, world_size, how)
    for seed in range(30):
        there.run(seed)
    start = time.process_time()
    for seed in range(100, 100 + seeds):
        assert there.run(seed).ok
    return seeds / (time.process_time() - start)


def peak_growth(program: str, seeds: int, world_size: int = 2, **how: Any) -> int:
    """Bytes that the process grew by over so many runs, after as many to warm up."""
    import resource

    there = replayer(program, world_size, how)
    for seed in range(seeds):
        there.run(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(seeds, 2 * seeds):
        there.run(seed)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
