"""Running correctness cases on a backend: ranks that serve case after case, and are started anew after a failure."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from .. import ranks as rank_sources
from ..cases import Case
from ..errors import require
from . import program

Records = list[dict[str, Any]]
EMULATOR_HEAP_BYTES = 1 << 26
EMULATOR_TIMEOUT_S = 60.0  # without progress of any rank
VIRTUAL_HEAP_BYTES = 1 << 27


def unavailable(backend: str, world_size: int, case: Case) -> str:
    """Why a backend cannot run a case at all; "" if it can."""
    if case.get("transport") != "rdma" or backend == "emulator":
        return ""
    if backend == "gpu-virtual":
        return "rdma needs NVSHMEM, which wants a process and a GPU a rank"
    return "rdma between one rank and itself needs no NVSHMEM, and none is started" if world_size == 1 else ""


def source(backend: str, world_size: int, nvshmem: bool = False) -> Any:
    """A context manager with `run(program, *args)` on ranks of the backend; `nvshmem`: GPU heaps from NVSHMEM, for rdma."""
    require(backend in rank_sources.BACKENDS, "backend", backend, ", ".join(rank_sources.BACKENDS))
    if backend == "emulator":
        from emulator import Ranks

        return Ranks(world_size, heap_bytes=EMULATOR_HEAP_BYTES, timeout_s=EMULATOR_TIMEOUT_S)
    require(rank_sources.gpu_count() >= 1, "backend", backend, "emulator; there is no GPU here")
    if backend == "gpu":
        return rank_sources.gpus(world_size, symmetric="NVSHMEM" if nvshmem else None)
    return rank_sources.VirtualRanks(world_size, VIRTUAL_HEAP_BYTES)


def run(
    backend: str,
    world_size: int,
    jobs: list[tuple[str, Case]],
    fault: str = "",
    work: Callable[..., Records] = program.run,
    on_hang: Callable[[str, Case], None] | None = None,
    extra: tuple[Any, ...] = (),
) -> Iterator[tuple[str, Case, Records, str]]:
    """(operator, case, records of all ranks, reason of a failure or "") of each job, rdma on GPUs last: it has heaps of its own."""
    for nvshmem in (False, True):
        mine = [job for job in jobs if nvshmem == (backend == "gpu" and job[1].get("transport") == "rdma")]
        with ExitStack() as stack:
            ranks: Any = None
            for operator, case in mine:
                if ranks is None:
                    ranks = stack.enter_context(source(backend, world_size, nvshmem))
                if on_hang is not None and isinstance(ranks, rank_sources.VirtualRanks):
                    ranks.on_hang = lambda o=operator, c=case: on_hang(o, c)
                arguments = (operator, case, fault) if work is program.run else (operator, case, *extra)
                try:
                    per_rank = ranks.run(work, *arguments)
                except (ValueError, OSError) as error:  # ExperimentError, EmulatorError, ProblemError: one text each
                    yield operator, case, [], rank_sources.one_line(error)
                    stack.close()
                    ranks = None
                    continue
                yield operator, case, [record for records in per_rank for record in records], ""
