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


STUDIES: dict[str, Study] = {}
