"""Timing one arm: CUDA graphs of several calls, or the same calls one by one, between two events on a stream of their own."""

from collections.abc import Callable
from typing import Any

import torch

WARM_UP_CALLS = 3
WARM_UP_REPLAYS = 2
HEAD_START_CYCLES = 60_000  # the GPU sleeps while the host queues what is timed


class Captured:
    """An arm ready to be timed: its calls, rotating through the slots, as one graph (or None where capture is refused)."""

    def __init__(self, call: Callable[[int], torch.Tensor], n_slots: int, n_calls: int, stream: Any):
        self.call, self.n_slots, self.n_calls, self.stream = call, n_slots, n_calls, stream
        self.graph: Any = None
        self.result: torch.Tensor | None = None

    def capture(self) -> None:
        """Collective where the arm communicates."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.result = self.all_calls()
        self.graph = graph
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP_REPLAYS):
                graph.replay()
        torch.cuda.synchronize()

    def all_calls(self) -> torch.Tensor:
        """All calls eagerly; the last one's result, which is of the last slot."""
        result = None
        for number in range(self.n_calls):
            result = self.call(number % self.n_slots)
        assert result is not None
        return result

    def start(self, mode: str, align: Callable[[], None]) -> tuple[Any, Any]:
        """Queue one sample; (start, end) events. `align` makes the ranks' streams begin together."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            if mode == "graph":
                torch.cuda._sleep(HEAD_START_CYCLES)
            align()
            begin.record()
            self.graph.replay() if mode == "graph" else self.all_calls()
            end.record()
        return begin, end

    def estimate_us(self) -> float:
        """Time of one call, roughly, after warming it up."""
        with torch.cuda.stream(self.stream):
            for number in range(WARM_UP_CALLS):
                self.call(number % self.n_slots)
            torch.cuda.synchronize()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(10 * HEAD_START_CYCLES)
            begin.record()
            for number in range(self.n_slots):
                self.call(number % self.n_slots)
            end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / self.n_slots


def aligner(symm: Any) -> Callable[[], None]:
    """What makes the ranks' streams begin together: a tiny all-reduce, which no rank leaves before all have entered it."""
    group = getattr(symm, "group", None)
    if group is None:
        return lambda: None
    import torch.distributed as dist

    token = torch.zeros(1, device=symm.device)
    return lambda: dist.all_reduce(token, group=group)


def sample_all(
    captured: dict[str, Captured], rounds: list[list[str]], mode: str, align: Callable[[], None]
) -> dict[str, list[float]]:
    """Microseconds a call on this rank, by arm, one value a round; arms in the order that `rounds` gives."""
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in captured}
    for names in rounds:
        for name in names:
            events[name].append(captured[name].start(mode, align))
        torch.cuda.synchronize()
    return {
        name: [begin.elapsed_time(end) * 1e3 / captured[name].n_calls for begin, end in pairs]
        for name, pairs in events.items()
    }
