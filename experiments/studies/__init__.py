"""Studies: one module each, with a case file, for any number of GPUs; `python -m experiments.record` runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Study:
    """A study as the recorder sees it.

    Attributes:
        worlds: world sizes for which it makes sense.
        run: (ranks, machine, file to write, clock) -> whether it is complete.
    """

    worlds: tuple[int, ...]
    run: Callable[[Any, str, Path, Any], bool]


def _with_arms(name: str) -> Callable[[Any, str, Path, Any], bool]:
    def run(source: Any, machine: str, out: Path, clock: Any) -> bool:
        from . import engine

        return engine.run(name, source, machine, out, clock)

    return run


def _timeline(source: Any, machine: str, out: Path, clock: Any) -> bool:
    from . import timeline

    return timeline.run(source, machine, out, clock)


def _litmus(source: Any, machine: str, out: Path, clock: Any) -> bool:
    from ..litmus import run

    return run.run(source, machine, out, clock)


STUDIES: dict[str, Study] = {
    "occupancy": Study((1, 2, 4, 8), _with_arms("occupancy")),
    "order": Study((2, 4, 8), _with_arms("order")),
    "staging": Study((1, 2, 4, 8), _with_arms("staging")),
    "timeline": Study((1, 2, 4, 8), _timeline),
    "litmus": Study((1, 2), _litmus),
}
