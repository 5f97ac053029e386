"""Arms of GEMV + AllReduce."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn.functional as F

from . import Arm, Bench, Unavailable, with_config

Call = Callable[[int], torch.Tensor]
PUSH_WGS = 16


def _own(b: Bench, out: torch.Tensor) -> Call:
    """This repository's compute kernel into `out`."""
    from kernels import gemv_all_reduce as op

    config = op.default_config(b.problem, b.symm, "compute")
    return with_config(
        lambda slot: op.compute(b.symm, b.problem, b.slots[slot]["weight"], b.slots[slot]["x"], out, config), config
    )


def _linear(b: Bench, out: torch.Tensor) -> Call:
    """F.linear; its result is what the collective takes, copied only where `out` is a particular buffer."""
    return lambda slot: torch.mm(b.slots[slot]["x"], b.slots[slot]["weight"].T, out=out)


def _mv(b: Bench, out: torch.Tensor) -> Call:
    if b.problem.batch != 1:
        raise Unavailable("torch.mv takes one vector")

    def call(slot: int) -> torch.Tensor:
        torch.mv(b.slots[slot]["weight"], b.slots[slot]["x"][0], out=out[0])
        return out

    return call


COMPUTES = {"own": _own, "linear": _linear, "mv": _mv}


def _private(b: Bench) -> torch.Tensor:
    return torch.empty(b.problem.batch, b.problem.m, dtype=b.problem.dtype, device=b.symm.device)


def _compute(b: Bench, kind: str) -> Call:
    if kind != "f_linear":
        return COMPUTES[kind](b, _private(b))
    return lambda slot: F.linear(b.slots[slot]["x"], b.slots[slot]["weight"])


def _nccl(b: Bench, kind: str) -> Call:
    out, group = _private(b), b.group
    compute = COMPUTES[kind](b, out)

    def call(slot: int) -> torch.Tensor:
        compute(slot)
        dist.all_reduce(out, group=group)
        return out

    return call


def _symm_mem(b: Bench, kind: str, shots: str) -> Call:
    """torch's symmetric-memory all-reduce behind the compute kernel, which writes straight into its buffer."""
    name = b.group.group_name
    buffer = b.library_symmetric("gemv", (b.problem.batch, b.problem.m), b.problem.dtype)
    compute = COMPUTES[kind](b, buffer)
    if shots == "one_shot" and b.problem.dtype == torch.float16:
        raise Unavailable("torch's one_shot_all_reduce does not take float16")
    if b.problem.batch * b.problem.m * b.problem.dtype.itemsize % 16:
        raise Unavailable("torch's symmetric-memory all-reduce needs a multiple of 16 bytes")

    def one_shot(slot: int) -> torch.Tensor:
        compute(slot)
        return torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)

    def two_shot(slot: int) -> torch.Tensor:
        compute(slot)
        return torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", name)

    return one_shot if shots == "one_shot" else two_shot


def _push(b: Bench) -> Call:
    """The compute kernel, then a plain kernel that pushes the partial vector to all ranks, waits and adds."""
    from ..pushing import push_all_reduce

    b.group  # noqa: B018 - raises Unavailable for a single rank
    partial, result = _private(b), _private(b)
    compute = _own(b, partial)
    push = push_all_reduce(b, partial, result, PUSH_WGS)

    def call(slot: int) -> torch.Tensor:
        compute(slot)
        push()
        return result

    return call


def _fused(b: Bench, algorithm: str, owned: bool) -> Call:
    from kernels import gemv_all_reduce as op

    out = b.symmetric("out", (b.problem.batch, b.problem.m), b.problem.dtype)
    config = op.default_config(b.problem, b.symm)
    if algorithm != "default":
        config = replace(config, algorithm=algorithm)

    def call(slot: int) -> torch.Tensor:
        op.fused(b.symm, b.problem, b.slots[slot]["weight"], b.slots[slot]["x"], out, config=config)
        return out.clone() if owned else out

    return with_config(call, config)


def _decomposed(b: Bench) -> Call:
    """Wang et al.: one owner's rows after the other, each on its way while the next is computed."""
    from kernels import gemv_all_reduce as op

    b.group  # noqa: B018 - raises Unavailable for a single rank
    out, config = _private(b), op.default_config(b.problem, b.symm, "compute")

    def call(slot: int) -> torch.Tensor:
        return op.decomposed(b.symm, b.problem, b.slots[slot]["weight"], b.slots[slot]["x"], out, config=config)

    return with_config(call, config)


def arms(b: Bench) -> list[Arm]:
    """Fused first, then what a user would do without it."""
    rounded = 2 * b.world  # each rank's partial, and each sum on its way, in the dtype
    found = [Arm(f"fused.{a}", "fused", "out", lambda a=a: _fused(b, a, False)) for a in ("two_phase", "one_shot")]
    found.append(Arm("fused.owned", "fused", "owned", lambda: _fused(b, "default", True)))
    found += [
        Arm(k, "compute", "none", lambda k=k: _compute(b, k), "partial", 2 * (k != "own"))
        for k in ("own", "f_linear", "linear", "mv")
    ]
    if b.world > 1:
        found += [Arm(f"{k}+nccl", "bulk", "none", lambda k=k: _nccl(b, k), "result", rounded) for k in COMPUTES]
        found += [
            Arm(f"{k}+symm_{s}", "bulk", "none", lambda k=k, s=s: _symm_mem(b, k, s), "result", rounded)
            for s in ("one_shot", "two_shot")
            for k in COMPUTES
        ]
        found.append(Arm("own+push", "push", "none", lambda: _push(b), "result", rounded))
        found.append(Arm("decomposed", "decomposed", "none", lambda: _decomposed(b)))
    return found
