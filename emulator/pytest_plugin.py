"""A pytest fixture: a user's test of a user's kernel. Load it with `pytest_plugins = ["emulator.pytest_plugin"]` or `-p emulator.pytest_plugin`.

    def test_mine(schedules):
        schedules(program, world_size=2, seeds=200)

The test's own process imports triton as it likes: schedules run in one that interprets.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import Ranks
from .processes import name_of
from .verdicts import Exploration, Verdict

_TIMEOUT_S = 3600.0


def explored(symm: Any, asked: Exploration) -> Verdict:
    """What the process that interprets does (`symm` is its lone rank's, not the program's)."""
    from .explore import explore

    return explore(asked)


@pytest.fixture(scope="session")
def _interpreting() -> Iterator[Ranks]:
    with Ranks(1, timeout_s=_TIMEOUT_S) as ranks:
        yield ranks


@pytest.fixture
def schedules(_interpreting: Ranks) -> Callable[..., Verdict]:
    """`schedules(program, world_size=2, args=(), seeds=200, first=0, schedulers=(), **options)`: fail with the first finding.

    program: a function at the top level of a module, or "path.py::function". options: fields of `ReplayOptions`.
    Returns the verdict. The failure's text is the shrunk finding with its seed; a program that does not run at all raises `EmulatorError`.
    """

    def run(
        program: Callable[..., Any] | str, world_size: int = 2, args: tuple = (), seeds: int = 200, first: int = 0,
        schedulers: tuple[str, ...] = (), heap_bytes: int | None = None, **options: Any,
    ) -> Verdict:  # fmt: skip
        asked = Exploration(
            program=name_of(program), world_size=world_size, args=args, seeds=seeds, first=first, schedulers=schedulers,
            heap_bytes=heap_bytes, options=options,
        )  # fmt: skip
        verdict = _interpreting.run(explored, asked)[0]
        if verdict.finding is not None:
            pytest.fail(f"{asked.program} on {world_size} ranks: {verdict.finding}", pytrace=False)
        return verdict

    return run
