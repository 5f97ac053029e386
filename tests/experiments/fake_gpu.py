"""A stand-in for one GPU: kernels run in Triton's own interpreter on the CPU, events tell a clock that the test winds."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, in a process of its own

from types import SimpleNamespace
from typing import Any, Self

import torch


class Clock:
    """Every launch and library call takes as long as the test says."""

    now_ms = 0.0


class Event:
    def __init__(self, enable_timing: bool = False):
        self.at = 0.0

    def record(self) -> None:
        self.at = Clock.now_ms

    def elapsed_time(self, other: "Event") -> float:
        return other.at - self.at


class Context:
    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class Rank:
    """World size 1 on the CPU."""

    rank, world_size = 0, 1
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.bases = torch.zeros(1, dtype=torch.int64)
        self.state: dict[Any, Any] = {}

    def empty(self, shape: Any, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def barrier(self) -> None:
        pass

    def exchange(self, value: Any) -> list[Any]:
        return [value]

    def max_resident(self, num_warps: int) -> int:
        return 8

    def launch(
        self, kernel: Any, grid: int, args: dict, *, num_warps: int = 4, num_stages: int = 1, waits: bool = True
    ) -> None:
        kernel[(grid,)](**args)
        Clock.now_ms += 0.010


def install() -> None:
    """Put the stand-ins in the place of what the harness takes from torch.cuda."""
    from experiments.measure import program, sampling, schedule

    properties = SimpleNamespace(L2_cache_size=16, multi_processor_count=2)
    fakes = {
        "Event": Event, "Stream": Context, "stream": Context, "synchronize": lambda *a: None, "empty_cache": lambda: None,
        "_sleep": lambda cycles: None, "get_device_properties": lambda device: properties,
    }  # fmt: skip
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)

    def capture(self: Any) -> None:
        self.result = self.all_calls()
        result = self.result

        def replay() -> None:
            again = self.all_calls()
            if again is not result:
                result.copy_(again)

        self.graph = SimpleNamespace(replay=replay)

    sampling.Captured.capture = capture
    schedule.GRAPH_TARGET_US = 1.0  # as few calls as there are slots
    program._occupy = lambda symm, seconds: None
