"""A captured call replayed many times with changing inputs: epochs and buffers must hold for ever without the host's help."""

from typing import Any

import torch

from .. import operators
from ..cases import Case

SETS = 5  # different inputs that take turns: not a divisor of anything the kernels count by


def suits(case: Case) -> bool:
    """Cases whose operands have the same shapes for every seed."""
    return case.get("bags") != "ragged" and case.get("transport") != "rdma"


def _tensors(operands: operators.Operands) -> list[torch.Tensor]:
    """All tensors among the operands, in a fixed order."""
    found = []
    for value in operands.values():
        values = vars(value).values() if hasattr(value, "__dataclass_fields__") else [value]
        found += [v for v in values if isinstance(v, torch.Tensor)]
    return found


def run(symm: Any, operator: str, case: Case, replays: int) -> list[dict[str, Any]]:
    """Capture one call of the case, replay it; one record for the worst replay of this rank."""
    adapter = operators.get(operator)
    case = case | {"changing": 0}
    problem = adapter.problem(case, symm.world_size)
    seeds = [case["seed"] * 1000 + n for n in range(SETS)]
    sets = [_tensors(adapter.operands(problem, case, symm.rank, seed, symm.device)) for seed in seeds]
    expected = [adapter.expected(problem, case, symm.rank, seed, symm.device) for seed in seeds]
    live = adapter.operands(problem, case, symm.rank, seeds[0], symm.device)
    shape = adapter.out_shape(problem, symm.rank)
    out = symm.empty(torch.Size(shape).numel(), problem.dtype, "experiments.replayed").view(shape)
    ratios = torch.zeros(replays, device=symm.device)
    adapter.run(symm, problem, case, live, out)  # compiles, and makes workspaces

    def check(number: int) -> None:
        exact, bound, _ = expected[number % SETS]
        if exact.numel():
            error = (out[: len(exact)].double() - exact).abs().nan_to_num(nan=float("inf"))
            ratios[number] = (error / bound).max()

    # Memory for the comparison is allocated now: an allocation while a peer's kernel spins may wait for that kernel.
    check(0)
    torch.cuda.synchronize()
    symm.barrier()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # Not `torch.cuda.graph`: its device-wide synchronisation is illegal while another virtual rank captures.
        graph.capture_begin(capture_error_mode="thread_local")
        adapter.run(symm, problem, case, live, out)
        graph.capture_end()
    symm.barrier()
    for number in range(replays):
        for target, values in zip(_tensors(live), sets[number % SETS], strict=True):
            target.copy_(values)
        out.fill_(float("nan"))
        graph.replay()
        check(number)
    torch.cuda.current_stream().synchronize()
    symm.barrier()
    worst = int(ratios.argmax())
    ok = bool((ratios <= 1).all())
    record = {
        "call": worst,
        "rank": symm.rank,
        "seed": seeds[worst % SETS],
        "max_abs_error": float(ratios[worst]),
        "bound": 1.0,
    }
    return [
        record
        | {"ok": ok, "reason": "" if ok else "an element is outside its bound (error and bound in units of the bound)"}
    ]
