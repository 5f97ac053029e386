"""Replay mode interprets kernels, which is fixed when triton is imported: tests call it in a process of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator import Ranks


@pytest.fixture(scope="session")
def interpreting() -> Iterator[Callable[..., Any]]:
    """`interpreting(name, ...)` calls `replay_cases.name(...)` there."""
    with Ranks(1, timeout_s=600) as ranks:
        yield lambda name, *args, **how: ranks.run("tests.emulator.replay_cases:call", name, args, how)[0]
