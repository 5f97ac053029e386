"""Symmetric memory of a single rank that has a GPU for itself: a world of one, which needs no process group."""

from typing import Any

import torch

from kernels.gpu_memory import _GpuRank


class SingleRank(_GpuRank):
    """World size 1; launches exactly as with several GPUs, except that nothing is waited for."""

    rank = 0
    world_size = 1

    def __init__(self, heap_bytes: int):
        self.device = torch.device("cuda", torch.cuda.current_device())
        heap = torch.zeros(heap_bytes, dtype=torch.uint8, device=self.device)
        super().__init__(heap, [heap.data_ptr()], share=1)

    def barrier(self) -> None:
        torch.cuda.synchronize(self.device)

    def exchange(self, value: Any) -> list[Any]:
        return [value]
