"""Symmetric memory on GPUs: one process a GPU (torch symmetric memory), or several virtual ranks on one GPU.

Virtual ranks run the compiled kernels with their real flags and stores where only one GPU is at hand. They say whether a
kernel is right on that chip, never how fast a link is.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .errors import ProblemError, require, require_world_size
from .symmetric import BumpHeap

DEFAULT_HEAP_BYTES = 1 << 30


class _GpuRank:
    """What both providers share: a heap tensor per rank, bump allocation, launches that cannot outgrow the chip."""

    rank: int
    world_size: int
    device: torch.device

    def __init__(self, heap: torch.Tensor, bases: list[int], share: int):
        self.heap = heap
        self.bases = torch.tensor(bases, dtype=torch.int64, device=heap.device)
        self.state: dict[Any, Any] = {}
        self._bump = BumpHeap(heap.numel())
        self._share = share
        properties = torch.cuda.get_device_properties(heap.device)
        self._sms = properties.multi_processor_count
        self._warps_per_sm = properties.max_threads_per_multi_processor // properties.warp_size

    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        offset, nbytes = self._bump.take(shape, dtype)
        region = self.heap[offset : offset + nbytes]
        region.zero_()
        torch.cuda.synchronize(self.device)
        self.barrier()
        return region.view(dtype).view(shape)

    def max_resident(self, num_warps: int) -> int:
        return max(1, self._sms * (self._warps_per_sm // num_warps) // self._share)

    def barrier(self) -> None:
        raise NotImplementedError

    def launch(
        self,
        kernel: Any,
        grid: int,
        args: dict[str, Any],
        *,
        num_warps: int = 4,
        num_stages: int = 1,
        waits: bool = True,
    ) -> None:
        limit = self.max_resident(num_warps)
        require(
            not waits or grid <= limit,
            "grid",
            grid,
            f"1 to {limit}, the work-groups of {num_warps} warps that are resident",
        )
        # A cooperative launch starts only when every work-group of the grid is resident, whatever other streams run.
        try:
            kernel[(grid,)](
                **args,
                num_warps=num_warps,
                num_stages=num_stages,
                launch_cooperative_grid=waits and self.world_size > 1,
            )
        except RuntimeError as error:
            if "cooperative" not in str(error).lower():
                raise
            raise ProblemError(
                f"grid is {grid!r}; allowed: what fits at once with this kernel's registers and shared memory"
            ) from error


class TorchSymmetricMemory(_GpuRank):
    """One process a GPU; heap and peer addresses from `torch.distributed._symmetric_memory`."""

    def __init__(self, group: dist.ProcessGroup, heap_bytes: int = DEFAULT_HEAP_BYTES, backend: str | None = None):
        import torch.distributed._symmetric_memory as symm_mem

        self.group = group
        self.rank, self.world_size = group.rank(), group.size()
        require_world_size(self.world_size)
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.backend = backend
        if backend is not None:
            symm_mem.set_backend(backend)
        heap = symm_mem.empty(heap_bytes, dtype=torch.uint8, device=self.device)
        self.handle = symm_mem.rendezvous(heap, group)
        super().__init__(heap, list(self.handle.buffer_ptrs), share=1)

    def barrier(self) -> None:
        dist.barrier(self.group)

    def exchange(self, value: Any) -> list[Any]:
        out: list[Any] = [None] * self.world_size
        dist.all_gather_object(out, value, group=self.group)
        return out


def from_group(
    group_name: str, heap_bytes: int = DEFAULT_HEAP_BYTES, backend: str | None = None
) -> TorchSymmetricMemory:
    """Collective: new symmetric memory for the ranks of a process group. Whoever asks keeps it."""
    return TorchSymmetricMemory(dist.distributed_c10d._resolve_process_group(group_name), heap_bytes, backend)


class VirtualRank(_GpuRank):
    """One of several ranks that share a GPU, each a host thread with a stream of its own.

    Launches meet at a host barrier, after each has compiled and loaded its kernel: loading a module while another rank's
    kernel spins would wait for that kernel for ever. Skew between ranks is made on the device (`torch.cuda._sleep`).
    """

    def __init__(self, rank: int, heaps: list[torch.Tensor], meeting: threading.Barrier, board: list[Any]):
        self.rank, self.world_size = rank, len(heaps)
        self.device = heaps[rank].device
        self._meeting, self._board = meeting, board
        super().__init__(heaps[rank], [h.data_ptr() for h in heaps], share=len(heaps))

    def barrier(self) -> None:
        self._meeting.wait()

    def exchange(self, value: Any) -> list[Any]:
        self._board[self.rank] = value
        self._meeting.wait()
        out = list(self._board)
        self._meeting.wait()
        return out

    def launch(
        self,
        kernel: Any,
        grid: int,
        args: dict[str, Any],
        *,
        num_warps: int = 4,
        num_stages: int = 1,
        waits: bool = True,
    ) -> None:
        limit = self.max_resident(num_warps)
        require(not waits or grid <= limit, "grid", grid, f"1 to {limit}, this virtual rank's share of the device")
        # The first rank compiles, the others then find it: compiling side by side would do the same work world_size times.
        if self.rank > 0:
            self._meeting.wait()
        compiled = kernel.warmup(**args, num_warps=num_warps, num_stages=num_stages, grid=(grid,))
        compiled._init_handles()
        if self.rank == 0:
            self._meeting.wait()
        self._meeting.wait()
        kernel[(grid,)](**args, num_warps=num_warps, num_stages=num_stages)


def run_virtual(program: Callable[..., Any], world_size: int, *args: Any, heap_bytes: int = 1 << 26) -> list[Any]:
    """Run `program(symm, *args)` once per virtual rank on the current GPU; the results in rank order.

    The first rank's exception is raised after all threads have ended.
    """
    require_world_size(world_size)
    # Eager loading: a module loaded while a peer's kernel spins waits for that kernel. One hardware queue a stream: two ranks
    # in one queue would run one after the other, and the first would wait for the second for ever.
    for variable, value in (("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")):
        if not torch.cuda.is_initialized():
            os.environ.setdefault(variable, value)
        require(
            os.environ.get(variable) == value, variable, os.environ.get(variable), f"{value}, set before CUDA starts"
        )
    heaps = [torch.zeros(heap_bytes, dtype=torch.uint8, device="cuda") for _ in range(world_size)]
    meeting = threading.Barrier(world_size)
    board: list[Any] = [None] * world_size
    results: list[Any] = [None] * world_size
    errors: list[BaseException | None] = [None] * world_size
    torch.cuda.synchronize()

    def body(rank: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                results[rank] = program(VirtualRank(rank, heaps, meeting, board), *args)
                torch.cuda.current_stream().synchronize()
        except BaseException as error:  # noqa: BLE001 - reported by the caller's thread
            errors[rank] = error
            meeting.abort()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = [e for e in errors if e is not None]
    first = next((e for e in broken if not isinstance(e, threading.BrokenBarrierError)), broken[0] if broken else None)
    if first is not None:
        raise first
    return results
