"""Multi-rank Triton kernels on a CPU, under an adversary. See README.md.

    import emulator
    results = emulator.run(program, world_size=4)          # program(symm, *args), once per rank
    with emulator.Ranks(4) as ranks:                       # ranks start once and serve many programs
        results = ranks.run(program, *args, seed=7)

Nothing here imports triton: the caller's process may compile its kernels, the ranks interpret them.
"""

from collections.abc import Callable
from typing import Any

from .errors import (
    BadAddress,
    EmulatorError,
    Hang,
    OutOfHeap,
    ProgramFailed,
    RaceFound,
    RankDied,
    TooManyWorkGroups,
    Unsupported,
)
from .processes import Counts, Options, Ranks, name_of

__all__ = [
    "BadAddress",
    "Counts",
    "EmulatorError",
    "Hang",
    "Options",
    "OutOfHeap",
    "ProgramFailed",
    "RaceFound",
    "RankDied",
    "Ranks",
    "TooManyWorkGroups",
    "Unsupported",
    "run",
]


def run(
    program: Callable[..., Any] | str, world_size: int, *, args: tuple = (), mode: str = "processes", seed: int = 0,
    resident: int = 4, heap_bytes: int | None = None, timeout_s: float = 60.0, options: Any = None,
) -> list[Any]:  # fmt: skip
    """`program(symm, *args)` once on each of `world_size` ranks; what each returned, by rank.

    Args:
        program: function at the top level of a module, or "module:function" or "path.py::function".
        mode: "processes" (a process a rank, real concurrency) or "replay" (one memory operation at a time; same seed, same run).
        seed: of scheduling and delivery.
        resident: physical work-groups of a rank at a time.
        heap_bytes: symmetric heap of each rank; None for the mode's default.
        timeout_s: seconds without progress after which a run counts as hung (replay: seconds that it may take at all).
        options: `Options` of processes mode, or `ReplayOptions`.

    Raises an `EmulatorError` whose text names rank, work-group and source line.
    """
    sizes = {} if heap_bytes is None else {"heap_bytes": heap_bytes}
    if mode == "processes":
        with Ranks(world_size, resident=resident, timeout_s=timeout_s, options=options, **sizes) as ranks:
            return ranks.run(program, *args, seed=seed)
    if mode == "replay":
        request = (name_of(program), args, world_size, heap_bytes, seed, resident, options)
        with Ranks(1, timeout_s=timeout_s) as ranks:
            return ranks.run(f"{__name__}.processes.replaying:replayed", *request)[0]
    raise EmulatorError(f"mode is {mode!r}; allowed: 'processes', 'replay'")
