"""What the notebook runs on every rank: the fused GEMV + AllReduce, whole or with a fault put into its source."""

from contextlib import ExitStack
from functools import cache
from importlib import import_module
from typing import Any

_FAULTS_STAY = ExitStack()  # a replay's ranks share this process, which ends with the run


@cache
def operator(fault: str) -> Any:
    """The operator's module; with `fault` put into the kernels' source before anything imports them."""
    from experiments.verify import faults

    if fault:
        _FAULTS_STAY.enter_context(faults.injected(fault, ("kernels.gemv_device",)))
    return import_module("kernels.gemv_all_reduce")


def gemv(symm: Any, fault: str = "", m: int = 24, k: int = 40) -> float:
    """One call of the fused operator on small random operands; the largest error against the float64 reference."""
    import torch

    op = operator(fault)
    problem = op.Problem(m=m, k=k, batch=1, dtype=torch.float32, world_size=symm.world_size)
    operands = [operand(rank, m, k) for rank in range(symm.world_size)]
    weight, x = operands[symm.rank]
    out = symm.empty((1, m), torch.float32)
    op.fused(symm, problem, weight, x, out, config=op.Config(grid=2, block_m=4, block_k=64, num_stages=1))
    exact, _ = op.reference([w for w, _ in operands], [v for _, v in operands])
    return float((out.double() - exact).abs().max())


def operand(rank: int, m: int, k: int) -> tuple[Any, Any]:
    """(weight, x) of a rank, the same whoever makes them."""
    import torch

    generator = torch.Generator().manual_seed(rank)
    return torch.randn(m, k, generator=generator), torch.randn(1, k, generator=generator)
