"""`emulator.run(mode="replay")`: one replay in a process that interprets, so that the caller's may compile."""

from dataclasses import replace
from typing import Any

from .. import errors
from . import programs
from .symm import Symm

_ERRORS = {
    "hang": errors.Hang,
    "livelock": errors.Hang,
    "error": errors.ProgramFailed,
    "address": errors.BadAddress,
}


def replayed(
    symm: Symm,
    program: str,
    args: tuple,
    world_size: int,
    heap_bytes: int | None,
    seed: int,
    resident: int,
    options: Any,
) -> list[Any]:
    """Results of all ranks of one replay. Raises the first report's error, with its text."""
    from ..replay import ReplayOptions, replay

    sizes = {} if heap_bytes is None else {"heap_bytes": heap_bytes}
    chosen = replace(options or ReplayOptions(), resident=resident)
    result = replay(programs.find(program), world_size, seed=seed, args=args, options=chosen, **sizes)
    if result.reports:
        first = result.reports[0]
        raise _ERRORS.get(first.kind, errors.RaceFound)(str(first))
    return list(result.results)
