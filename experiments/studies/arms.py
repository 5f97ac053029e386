"""Arms of the studies: one operator in many settings, timed and checked by the same harness as all arms."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import torch

from kernels.plan import ORDERS

from ..measure.arms import Arm, Bench, Unavailable, with_config

Call = Callable[[int], torch.Tensor]
EIGHTHS = tuple(Fraction(n, 8) for n in range(1, 9))
LATE_US = (0, 20, 100)
SLICES = (1, 2, 4, 8, 16)
CYCLES_PER_US = 1900  # torch.cuda._sleep counts cycles: about, since clocks move


def _operator(b: Bench) -> Any:
    return import_module(f"kernels.{b.adapter.name}")


def _arguments(b: Bench, slot: int) -> tuple[Any, ...]:
    operands = b.slots[slot]
    if b.adapter.name == "gemv_all_reduce":
        return operands["weight"], operands["x"]
    return tuple(operands.values())


def fused_call(b: Bench, config: Any, symm: Any = None, before: Callable[[], None] | None = None) -> Call:
    """The fused kernel with `config` into the shared symmetric result; `before` is queued in front of each call."""
    op, symm = _operator(b), symm or b.symm
    out = b.symmetric("out", b.adapter.out_shape(b.problem, b.symm.rank), b.problem.dtype)

    def call(slot: int) -> torch.Tensor:
        if before is not None:
            before()
        op.fused(symm, b.problem, *_arguments(b, slot), out, config=config)
        return out

    return with_config(call, config)


def compute_call(b: Bench, config: Any, symm: Any = None) -> Call:
    """The compute kernel alone with `config`."""
    op, symm, p = _operator(b), symm or b.symm, b.problem
    shape = {
        "gemv_all_reduce": lambda: (p.batch, p.m),
        "embedding_all_to_all": lambda: (p.batch, p.tables[b.symm.rank], p.dim),
        "gemm_all_to_all": lambda: (p.rows, p.n),
    }[b.adapter.name]()
    if "product" not in b.memo:
        b.memo["product"] = torch.empty(shape, dtype=p.dtype, device=b.symm.device)
    out = b.memo["product"]
    return with_config(lambda slot: op.compute(symm, p, *_arguments(b, slot), out, config), config)


def occupancy(b: Bench) -> list[Arm]:
    """Work-groups from an eighth of the warp slots to all of them: fused against compute-only, with tiles as tuned."""
    found = []
    for role, make, stage in (("fused", fused_call, "result"), ("compute", compute_call, "partial")):
        base = _operator(b).default_config(b.problem, b.symm, role)
        for part in EIGHTHS:
            grid = max(1, int(part * b.symm.max_resident(base.num_warps)))
            call = lambda make=make, base=base, grid=grid: make(b, replace(base, grid=grid))
            setting = {"parameter": "share of warp slots", "value": float(part)}
            face = "out" if role == "fused" else "none"
            found.append(Arm(f"{role} {part}", role, face, call, stage, eager=False, setting=setting))
    return found


def order(b: Bench) -> list[Arm]:
    """The orders of destinations against each other, also with rank 0 late by some time: how late do the others end?"""
    if b.world == 1:
        return []
    found = []
    base = _operator(b).default_config(b.problem, b.symm)
    for name in ORDERS:
        if name == "interleaved" and b.world == 2:  # remote_first again
            continue
        for late in LATE_US:
            cycles = late * CYCLES_PER_US if b.symm.rank == 0 else 0
            before = (lambda cycles=cycles: torch.cuda._sleep(cycles)) if cycles else None
            make = lambda name=name, before=before: fused_call(b, replace(base, order=name), before=before)
            setting = {"parameter": "rank 0 late by us", "value": float(late)}
            found.append(Arm(f"{name} late {late}", "fused", "out", make, eager=False, setting=setting))
    return found


def staging(b: Bench) -> list[Arm]:
    """Zero-copy stores against a stop in the rank's own memory, and rdma by slice size (on NVSHMEM heaps)."""
    if not hasattr(_operator(b).default_config(b.problem, b.symm), "transport"):
        return []
    base = _operator(b).default_config(b.problem, b.symm)
    found = []
    for transport in ("peer", "staged"):
        make = lambda t=transport: fused_call(b, replace(base, transport=t))
        strategy = "fused" if transport == "peer" else "staged"
        setting = {"parameter": "transport", "value": float(transport == "staged")}
        found.append(Arm(transport, strategy, "out", make, eager=False, setting=setting))
    field = "slice_blocks" if hasattr(base, "slice_blocks") else "group_m"
    for size in SLICES:
        make = lambda size=size: _rdma(b, replace(base, transport="rdma", **{field: size}))
        setting = {"parameter": field, "value": float(size)}
        found.append(Arm(f"rdma {field} {size}", "fused", "out", make, eager=False, setting=setting))
    return found


def _rdma(b: Bench, config: Any) -> Call:
    if getattr(b.symm, "backend", None) != "NVSHMEM":
        raise Unavailable("rdma needs heaps from NVSHMEM: this run does not use it")
    return fused_call(b, config)


ARMS: dict[str, Callable[[Bench], list[Arm]]] = {"occupancy": occupancy, "order": order, "staging": staging}
