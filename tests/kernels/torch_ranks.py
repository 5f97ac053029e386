"""Rank processes with a gloo group for the tests of the torch operators: started once, then any number of programs."""

import atexit
import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

ROOT = Path(__file__).parents[2]


def within(actual: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor) -> bool:
    """Whether every element of `actual` lies within `bound` of the float64 `expected`."""
    return actual.shape == expected.shape and bool(((actual.double() - expected).abs() <= bound).all())


def _serve(rank: int, world_size: int, store: str, tasks: Any, results: Any) -> None:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import datetime

    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=world_size, timeout=datetime.timedelta(seconds=100)
    )
    while (task := tasks.get()) is not None:
        program, args = task
        try:
            results.put((rank, program(*args), ""))
        except BaseException:  # noqa: BLE001 - reported by the test
            results.put((rank, None, traceback.format_exc()))
    dist.destroy_process_group()


class RankPool:
    """`world_size` processes of one gloo group; `run` calls a module-level function on all of them."""

    def __init__(self, world_size: int):
        context = mp.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.results = context.Queue()
        self.tasks = [context.Queue() for _ in range(world_size)]
        self.processes = [
            context.Process(target=_serve, args=(rank, world_size, f"{self.folder.name}/store", tasks, self.results))
            for rank, tasks in enumerate(self.tasks)
        ]
        for process in self.processes:
            process.start()

    def run(self, program: Callable[..., Any], *args: Any, timeout_s: float = 150) -> list[Any]:
        """The ranks' results in rank order; a rank that raises fails the test with its traceback and ends the pool."""
        for tasks in self.tasks:
            tasks.put((program, args))
        out: dict[int, Any] = {}
        for _ in self.tasks:
            rank, value, error = self.results.get(timeout=timeout_s)
            if error:
                self.close(force=True)
                raise AssertionError(f"rank {rank}:\n{error}")
            out[rank] = value
        return [out[rank] for rank in range(len(self.tasks))]

    def close(self, force: bool = False) -> None:
        """End the rank processes: at their next task, or at once."""
        pool.cache_clear()
        for tasks, process in zip(self.tasks, self.processes, strict=True):
            if force:
                process.terminate()
            else:
                tasks.put(None)
        for process in self.processes:
            process.join(20)
        self.folder.cleanup()


@functools.cache
def pool(world_size: int) -> RankPool:
    """The test run's pool of that many ranks, started when first asked for."""
    ranks = RankPool(world_size)
    atexit.register(lambda: ranks.close() if any(p.is_alive() for p in ranks.processes) else None)
    return ranks
