"""All arms of a tiny case on two emulated ranks, gloo in the place of NCCL: what a machine with two GPUs would run."""

import os
from typing import Any


def all_arms(symm: Any, rendezvous: str, operator: str, case: dict) -> dict[str, Any]:
    """The report of `program.run_case` on this rank, with a stand-in for torch.cuda."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=symm.rank, world_size=symm.world_size)

    import fake_gpu

    fake_gpu.install()
    from experiments.measure import program
    from experiments.measure.arms import embedding, gemm, gemv

    for module in (embedding, gemm, gemv):
        module.PUSH_WGS = 2
    wrapped = Grouped(symm, dist.group.WORLD)
    report = program.run_case(wrapped, operator, case, 2, 1, 5)
    return report


class Grouped:
    """An emulated rank that also has a process group, as a rank on a GPU does."""

    def __init__(self, symm: Any, group: Any):
        self._symm, self.group = symm, group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._symm, name)
