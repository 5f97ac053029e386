"""Spreads jobs over worker processes with a progress bar; the first failure stops all."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Job = TypeVar("Job")
Result = TypeVar("Result")


def workers() -> int:
    """Cores that this process may use, at most 8."""
    return max(1, min(8, len(os.sched_getaffinity(0))))


def mapper(function: Callable[[Job], Result], jobs: Sequence[Job], label: str) -> list[Result]:
    """`function` of every job, in the jobs' order whatever the order they finish in."""
    results: list[Result | None] = [None] * len(jobs)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # "spawn": the parent has torch's threads, which a forked child would find locked.
    context = multiprocessing.get_context("spawn")
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=len(jobs))
        with ProcessPoolExecutor(min(workers(), max(1, len(jobs))), mp_context=context) as pool:
            futures = {pool.submit(function, job): index for index, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    bar.advance(task)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return results  # type: ignore[return-value]


def serial(function: Callable[[Job], Result], jobs: Sequence[Job], label: str) -> list[Result]:
    """The same in this process, for tests."""
    return [function(job) for job in jobs]
