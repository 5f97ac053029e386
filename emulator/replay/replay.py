"""`replay`: run a program of several ranks once, under the adversary that a seed chooses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..errors import EmulatorError
from ..interpreter import active, install
from .backend import ReplayBackend
from .engine import Run, Stop
from .host import Host
from .options import Decisions, ReplayOptions
from .record import Records
from .report import Report
from .tracing import trace_lines
from .world import Refine, World

HEAP_BYTES = 64 << 20


@dataclass(frozen=True)
class ReplayResult:
    """What one run showed.

    Attributes:
        ok: no report. (What the program's results are worth is the caller's to check.)
        reports: findings, first first.
        seed: of the run.
        digest: 16 hex digits: equal if the same work-groups did the same operations in the same order.
        steps: scheduling points.
        trace: the last operations, one line each (option `trace`).
        results: what each rank's program returned (None where the run ended before).
        decisions: what was decided; replays the run without its seed.
        stats: counts: steps, switches, stores, stale_reads, remote_stores (tiles and puts), remote_flags.
    """

    ok: bool
    reports: tuple[Report, ...]
    seed: int
    digest: str
    steps: int
    trace: tuple[str, ...]
    results: tuple[Any, ...]
    decisions: Decisions
    stats: dict[str, int]


class Replayer:
    """Runs one program again and again; keeps the heaps and what is known of the program's work-groups between runs.

    Args:
        program: `program(symm, *args)`, run once a rank.
        world_size: ranks.
        args: further arguments, the same for every rank; programs must not change them.
        heap_bytes: of each rank's symmetric heap.
    Must run in a process that was started with TRITON_INTERPRET=1.
    """

    def __init__(self, program: Callable[..., Any], world_size: int, args: tuple = (), heap_bytes: int = HEAP_BYTES):
        if world_size < 1:
            raise EmulatorError(f"world_size is {world_size}; allowed: 1 or more")
        install()
        self.program, self.args = program, args
        self.world, self.records = World(world_size, heap_bytes), Records()

    def run(self, seed: int = 0, options: ReplayOptions | None = None) -> ReplayResult:
        """One run."""
        options = options or ReplayOptions()
        while True:
            try:
                return self._run(seed, options)
            except Refine as request:  # an access narrower than the buffer's elements: once more, with smaller cells
                self.world.refine(request)
                self.records.clear()

    def _run(self, seed: int, options: ReplayOptions) -> ReplayResult:
        self.world.begin()
        self.records.trim()
        run = Run(self.world, self.records, seed, options)
        run.hosts = [Host(run, rank, self.program, self.args) for rank in range(self.world.world_size)]
        grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
        try:
            with active(ReplayBackend(run)), run.watch_hosts():
                run.loop()
        except Stop:
            pass
        finally:
            run.end()
            torch.set_grad_enabled(grad)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
        memory = run.memory
        result = ReplayResult(
            ok=not run.reports,
            reports=tuple(run.reports),
            seed=seed,
            digest=f"{run.digest:016x}",
            steps=run.steps,
            trace=tuple(trace_lines(run)),
            results=tuple(h.result for h in run.hosts),
            decisions=Decisions(run.scheduler.taken, run.adversary.taken),
            stats={
                "steps": run.steps, "switches": run.scheduler.switches, "stores": len(memory.messages) - 1,
                "stale_reads": memory.stale_reads, "remote_stores": run.remote_stores, "remote_flags": run.remote_flags,
            },
        )  # fmt: skip
        run.forget()
        return result


def replay(
    program: Callable[..., Any],
    world_size: int,
    *,
    seed: int = 0,
    args: tuple = (),
    options: ReplayOptions | None = None,
    heap_bytes: int = HEAP_BYTES,
    **changes: Any,
) -> ReplayResult:
    """Run `program(symm, *args)` on `world_size` emulated ranks, once. `changes` are fields of `ReplayOptions`.

    For many seeds of one program make a `Replayer` once and call its `run`: that is several times faster.
    """
    options = replace(options or ReplayOptions(), **changes)
    return Replayer(program, world_size, args, heap_bytes).run(seed, options)
