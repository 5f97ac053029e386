"""What each rank runs for one correctness case, on whatever backend: emulator, GPUs, or virtual ranks on one GPU.

Calls follow one another without any synchronisation of the hosts in between: results are copied aside in stream order and
compared at the end, so that a fast rank may be in its next call while a slow one still reads the last result.
"""

import hashlib
import random
import time
from contextlib import nullcontext
from typing import Any

import torch

from .. import operators
from ..cases import Case
from . import faults

CYCLES_PER_US = 1500  # torch.cuda._sleep counts clock cycles; the skew need not be exact


def _skew(symm: Any, rng: random.Random, skew_us: int) -> None:
    """Arrive late by a random time: the host where ranks are processes, the device where they are streams."""
    delay = rng.uniform(0, skew_us) if rng.random() < 0.7 else 0.0
    if symm.device.type == "cuda":
        torch.cuda._sleep(int(delay * CYCLES_PER_US) + 1)
    else:
        time.sleep(delay / 1e6)


def compare(result: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor) -> tuple[float, float, bool]:
    """(error, bound, all within their bounds): error and bound of the element that comes closest to its bound or passes it by
    most. A NaN or infinity where the reference is finite counts as an infinite error.
    """
    if result.shape != exact.shape:
        return float("inf"), 0.0, False
    if result.numel() == 0:
        return 0.0, 0.0, True
    error = (result.double() - exact).abs().nan_to_num(nan=float("inf")).flatten()
    limits = bound.flatten()
    worst = int((error / limits.clamp_min(1e-300)).argmax())
    return float(error[worst]), float(limits[worst]), bool((error <= limits).all())


def run(symm: Any, operator: str, case: Case, fault: str = "") -> list[dict[str, Any]]:
    """All calls of one case on this rank; one record a call: call, rank, seed, max_abs_error, bound, counts, ok, reason."""
    adapter = operators.get(operator)
    with faults.injected(fault, adapter.device_modules) if fault else nullcontext():
        return _run(symm, adapter, case)


def _counts(symm: Any) -> tuple[int, int]:
    """(stores delivered to other ranks' heaps, flags delivered) by this rank so far; zeros where the backend does not count."""
    counts = getattr(symm, "counts", None)
    return getattr(counts, "remote_stores", 0), getattr(counts, "flags_delivered", 0)


def _buffer(symm: Any, adapter: operators.Adapter, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> torch.Tensor:
    """A symmetric result buffer for the largest call of any rank, kept from case to case (heaps only grow)."""
    need = max(max(symm.exchange(max(torch.Size(s).numel() for s in shapes))), 1)
    held = symm.state.setdefault("experiments.out", {})
    if dtype not in held or held[dtype].numel() < need:
        held[dtype] = symm.empty(need, dtype, "experiments.out")
    return held[dtype]


def _run(symm: Any, adapter: operators.Adapter, case: Case) -> list[dict[str, Any]]:
    calls = range(case["calls"])
    seeds = [case["seed"] * 1000 + call for call in calls]
    problems = [adapter.problem(case, symm.world_size, call) for call in calls]
    operands = [adapter.operands(p, case, symm.rank, s, symm.device) for p, s in zip(problems, seeds, strict=True)]
    shapes = [adapter.out_shape(p, symm.rank) for p in problems]
    buffer = _buffer(symm, adapter, shapes, problems[0].dtype)
    results = [torch.empty(shape, dtype=problems[0].dtype, device=symm.device) for shape in shapes]
    rng = random.Random(case["seed"] * 64 + symm.rank)
    if symm.device.type == "cuda":
        torch.cuda.synchronize()
    symm.barrier()
    before = _counts(symm)
    delivered = []
    for call in calls:
        out = buffer[: torch.Size(shapes[call]).numel()].view(shapes[call])
        _skew(symm, rng, case["skew_us"])
        out.fill_(float("nan"))  # poison: an element that nobody writes cannot pass
        results[call].copy_(adapter.run(symm, problems[call], case, operands[call], out))
        now = _counts(symm)
        delivered.append((now[0] - before[0], now[1] - before[1]))
        before = now
    if symm.device.type == "cuda":
        torch.cuda.current_stream().synchronize()
    symm.barrier()
    records = []
    for call in calls:
        exact, bound, _ = adapter.expected(problems[call], case, symm.rank, seeds[call], symm.device)
        # A rank's part of an uneven batch may be smaller than its buffer: rows behind it are nobody's.
        error, limit, ok = compare(results[call][: len(exact)], exact, bound)
        reason = "" if ok else "an element is outside its bound"
        if adapter.same_on_all_ranks:
            bits = hashlib.sha256(results[call].cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
            digests = symm.exchange(bits)
            differing = [r for r, d in enumerate(digests) if d != digests[0]]
            if ok and differing:
                ok, reason = False, f"bits differ between rank 0 and rank {differing[0]}"
        records.append(
            {
                "call": call,
                "rank": symm.rank,
                "seed": seeds[call],
                "max_abs_error": error,
                "bound": limit,
                "remote_stores": delivered[call][0],
                "flags_delivered": delivered[call][1],
                "ok": ok,
                "reason": reason,
            }
        )
    return records
