"""Replay mode interprets kernels, which is fixed when triton is imported: tests call it in a process of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator.replay.child import Interpreting


@pytest.fixture(scope="session")
def interpreting() -> Iterator[Callable[..., Any]]:
    """`interpreting(name, ...)` calls `replay_cases.name(...)` there."""
    with Interpreting() as there:
        yield lambda name, *args, **how: there.call(f"tests.emulator.replay_cases:{name}", *args, timeout_s=300, **how)
