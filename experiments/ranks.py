"""Where ranks come from: the emulator, one process a GPU, this process's launcher (torchrun), or virtual ranks on one GPU.

Each gives `run(program, *args)`: a module-level `program(symm, *args)` on every rank, the results in rank order.
"""

import multiprocessing
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, ClassVar, Self

from .cases import WORLD_SIZES
from .errors import ExperimentError, require

BACKENDS = ("emulator", "gpu", "gpu-virtual")
GPU_HEAP_BYTES = 1 << 30
Program = Callable[..., Any]


class RanksFailed(ExperimentError):
    """A rank raised, died or hung: the message says which and how. The ranks are gone."""


def gpu_count() -> int:
    """GPUs that this process sees; 0 without CUDA."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_writer() -> bool:
    """Whether this process writes files and prints: the launcher's rank 0, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0


def world_sizes(backend: str) -> tuple[int, ...]:
    """World sizes that a backend can run here."""
    if backend != "gpu":
        return WORLD_SIZES
    if "WORLD_SIZE" in os.environ:
        return (int(os.environ["WORLD_SIZE"]),)
    return tuple(w for w in WORLD_SIZES if w <= gpu_count())


class _Ranks:
    """A context manager that runs programs on `world_size` ranks."""

    def __init__(self, world_size: int, heap_bytes: int = GPU_HEAP_BYTES, symmetric: str | None = None):
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.symmetric = symmetric  # backend of torch's symmetric memory: None for its default, or "NVSHMEM"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the ranks go."""

    def run(self, program: Program, *args: Any, timeout_s: float = 600.0) -> list[Any]:
        """Results of `program(symm, *args)` in rank order. Raises `RanksFailed`."""
        raise NotImplementedError

    def agree(self, value: Any) -> Any:
        """`value` as rank 0's launcher process has it: where several processes drive the ranks, they must decide alike."""
        return value

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return is_writer()


class _Watchdog:
    """Ends the process when a kernel of its own hangs: nothing else can."""

    def __init__(self, timeout_s: float):
        self._timer = threading.Timer(timeout_s, self._fire)
        self._timer.daemon = True
        self.timeout_s = timeout_s
        self.on_hang: Callable[[], None] | None = None

    def _fire(self) -> None:
        print(f"error: no answer from the GPU after {self.timeout_s:g} s: a kernel hangs", flush=True)
        if self.on_hang:
            self.on_hang()
        os._exit(1)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


class VirtualRanks(_Ranks):
    """Several virtual ranks on one GPU, in this process; for correctness only. `on_hang` runs before the process ends."""

    on_hang: Callable[[], None] | None = None

    def run(self, program: Program, *args: Any, timeout_s: float = 600.0) -> list[Any]:
        from kernels import gpu_memory

        with _Watchdog(timeout_s) as watchdog:
            watchdog.on_hang = self.on_hang
            try:
                return gpu_memory.run_virtual(program, self.world_size, *args, heap_bytes=self.heap_bytes)
            except Exception as error:
                raise RanksFailed(one_line(error)) from error


class LocalRank(_Ranks):
    """One rank that has one GPU for itself, in this process."""

    def __init__(self, world_size: int = 1, heap_bytes: int = GPU_HEAP_BYTES):
        super().__init__(world_size, heap_bytes)
        self._symm: Any = None

    def run(self, program: Program, *args: Any, timeout_s: float = 600.0) -> list[Any]:
        import torch

        from .single import SingleRank

        with _Watchdog(timeout_s):
            try:
                if self._symm is None:
                    self._symm = SingleRank(self.heap_bytes)
                result = program(self._symm, *args)
                torch.cuda.synchronize()
                return [result]
            except Exception as error:
                raise RanksFailed(one_line(error)) from error

    def close(self) -> None:
        self._symm = None


class TorchrunRanks(_Ranks):
    """This process is one rank of a launcher that set RANK, WORLD_SIZE and LOCAL_RANK (torchrun, one process a GPU)."""

    _joined: ClassVar[dict[str | None, Any]] = {}  # by symmetric-memory backend; a process joins each once

    @property
    def symm(self) -> Any:
        """This rank's symmetric memory; collective on first use."""
        if self.symmetric not in self._joined:
            device = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
            self._joined[self.symmetric] = _join(device, "env://", {}, self.heap_bytes, self.symmetric)
        return self._joined[self.symmetric]

    def run(self, program: Program, *args: Any, timeout_s: float = 600.0) -> list[Any]:
        return self.symm.exchange(program(self.symm, *args))

    def agree(self, value: Any) -> Any:
        return self.symm.exchange(value)[0]


class GpuRanks(_Ranks):
    """One process a GPU, started once; they serve programs until closed. A rank that raises, dies or hangs ends all."""

    def __init__(self, world_size: int, heap_bytes: int = GPU_HEAP_BYTES, symmetric: str | None = None):
        super().__init__(world_size, heap_bytes, symmetric)
        require(world_size <= gpu_count(), "world_size", world_size, f"1 to {gpu_count()}, the GPUs there are")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, world_size, port, heap_bytes, symmetric, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def run(self, program: Program, *args: Any, timeout_s: float = 600.0) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((program, args))
        results: list[Any] = [None] * self.world_size
        waiting = set(range(self.world_size))
        end = time.monotonic() + timeout_s
        while waiting:
            ready = wait([self._pipes[r] for r in waiting], timeout=max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                raise RanksFailed(f"ranks {sorted(waiting)} did not answer within {timeout_s:g} s: a hang")
            for rank in [r for r in waiting if self._pipes[r] in ready]:
                try:
                    ok, value = self._pipes[rank].recv()
                except EOFError:
                    code = self._processes[rank].exitcode
                    self.close()
                    raise RanksFailed(f"rank {rank} died (exit code {code})") from None
                if not ok:
                    self.close()
                    raise RanksFailed(f"rank {rank}: {value}")
                results[rank] = value
                waiting.remove(rank)
        return results

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        self._processes, self._pipes = [], []


def _join(device: int, init_method: str, ranks: dict[str, int], heap_bytes: int, symmetric: str | None) -> Any:
    """Join the process group on GPU `device`; this rank's symmetric memory."""
    import torch
    import torch.distributed as dist

    from kernels import gpu_memory

    torch.cuda.set_device(device)
    if symmetric == "NVSHMEM":  # its heap is fixed when it starts, and holds more than ours
        os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", str(heap_bytes + (1 << 29)))
    if not dist.is_initialized():
        dist.init_process_group("nccl", init_method=init_method, device_id=torch.device("cuda", device), **ranks)
    return gpu_memory.from_group(dist.group.WORLD.group_name, heap_bytes, symmetric)


def _serve(rank: int, world_size: int, port: int, heap_bytes: int, symmetric: str | None, pipe: Connection) -> None:
    try:
        symm = _join(rank, f"tcp://127.0.0.1:{port}", {"rank": rank, "world_size": world_size}, heap_bytes, symmetric)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it in one line
        pipe.send((False, one_line(error)))
        return
    while True:
        try:
            program, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, program(symm, *args)))
        except Exception as error:  # noqa: BLE001 - as above
            traceback.print_exc()
            pipe.send((False, one_line(error)))
            return


def one_line(error: BaseException) -> str:
    """An exception as one line; the type only where the text alone would not do."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def gpus(world_size: int, heap_bytes: int = GPU_HEAP_BYTES, symmetric: str | None = None) -> _Ranks:
    """Ranks with a GPU each: of the launcher that started this process, in this process (one), or started here."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        have = int(os.environ["WORLD_SIZE"])
        require(world_size == have, "world_size", world_size, f"{have}, the ranks that the launcher started")
        return TorchrunRanks(world_size, heap_bytes, symmetric)
    require(gpu_count() >= world_size, "GPUs", gpu_count(), f"{world_size} or more for world_size {world_size}")
    return LocalRank(1, heap_bytes) if world_size == 1 else GpuRanks(world_size, heap_bytes, symmetric)
