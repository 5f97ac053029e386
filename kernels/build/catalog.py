"""Every kernel of the project that is built: which operator launches it, in which role and dtype, on which problem.

A compute kernel is built with the configuration of the fused one, so that their resources differ by the communication only.

A catalog is a module with `ENTRIES` and `launch(entry, symm)`; `python -m kernels.build --catalog MODULE` builds another.
Nothing here imports torch or Triton until `launch` is called, in the child that compiles.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WORLD_SIZE = 4  # the node that the paper measured: four GPUs
DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Entry:
    """One kernel to build.

    Attributes:
        kernel: unique name, "operator.variant.dtype".
        operator: the operator's module.
        role: "fused" (computes and communicates), "staged" (fused, but through a stage in the rank's own memory: the
            zero-copy ablation), "rdma" (fused, sending by a NIC), "compute" (the same mathematics alone).
        dtype: of the operands.
        variant: which of the operator's kernels.
        world_size: ranks that the kernel is compiled for.
        communicates: whether it raises flags and waits for them itself (over rdma a library does).
        library: "nvshmem" if it is linked with that library's device bitcode.
    """

    kernel: str
    operator: str
    role: str
    dtype: str
    variant: str
    world_size: int = WORLD_SIZE
    communicates: bool = True
    library: str = ""


def _entries(operator: str, variants: dict[str, str]) -> list[Entry]:
    """One entry per variant and dtype; what is not compared with the compute kernel in one dtype only."""
    return [
        Entry(
            f"{operator}.{variant}.{dtype}", operator, role, dtype, variant,
            communicates=role in ("fused", "staged"), library="nvshmem" if role == "rdma" else "",
        )
        for variant, role in variants.items()
        for dtype in (DTYPES if role in ("fused", "compute") else DTYPES[:1])
    ]  # fmt: skip


def _gemv_all_reduce(entry: Entry, symm: Any, dtype: "torch.dtype") -> None:
    import torch

    from .. import gemv_all_reduce as op

    problem = op.Problem(m=8192, k=8192, batch=1, dtype=dtype, world_size=symm.world_size)
    weight = torch.empty(problem.m, problem.k, dtype=dtype, device=symm.device)
    x = torch.empty(problem.batch, problem.k, dtype=dtype, device=symm.device)
    out = symm.empty((problem.batch, problem.m), dtype)
    config = op.default_config(problem, symm.as_gpu())
    if entry.variant == "compute":
        op.compute(symm, problem, weight, x, out, config)
    elif entry.variant == "rdma":
        op.fused(symm, problem, weight, x, out, config=replace(config, algorithm="two_phase", transport="rdma"))
    else:
        op.fused(symm, problem, weight, x, out, config=replace(config, algorithm=entry.variant))


def _embedding_all_to_all(entry: Entry, symm: Any, dtype: "torch.dtype") -> None:
    import torch

    from .. import embedding_all_to_all as op

    problem = op.Problem(batch=2048, tables=32, dim=128, dtype=dtype, world_size=symm.world_size)
    bags = problem.batch * problem.tables[symm.rank]
    tables = op.Tables(
        weight=torch.empty(32 * 100_000, problem.dim, dtype=dtype, device=symm.device),
        table_offsets=torch.empty(problem.tables[symm.rank], dtype=torch.int64, device=symm.device),
        indices=torch.empty(bags * 32, dtype=problem.index_dtype, device=symm.device),
        offsets=torch.empty(bags + 1, dtype=problem.index_dtype, device=symm.device),
    )
    config = op.default_config(problem, symm.as_gpu())
    if entry.role == "compute":
        out = torch.empty(problem.batch, problem.tables[symm.rank], problem.dim, dtype=dtype, device=symm.device)
        op.compute(symm, problem, tables, out, config)
    else:
        out = symm.empty((problem.batch_max, problem.all_tables, problem.dim), dtype)
        op.fused(symm, problem, tables, out, replace(config, transport=entry.variant))


def _gemm_all_to_all(entry: Entry, symm: Any, dtype: "torch.dtype") -> None:
    import torch

    from .. import gemm_all_to_all as op

    rows = 4096
    problem = op.Problem(rows, rows, n=4096, k=4096, experts=8, dtype=dtype, world_size=symm.world_size)
    blocks = (problem.experts, problem.world_size)
    experts = op.Experts(
        x=torch.empty(rows, problem.k, dtype=dtype, device=symm.device),
        weight=torch.empty(problem.experts, problem.n, problem.k, dtype=dtype, device=symm.device),
        counts=torch.empty(blocks, dtype=torch.int32, device=symm.device),
        dst_offsets=torch.empty(blocks, dtype=torch.int32, device=symm.device),
    )
    config = op.default_config(problem, symm.as_gpu())
    if symm.target.is_amd and dtype != torch.float32:
        # The default is for Hopper. These have no bulk loads, and 64 KiB of LDS hold one stage of a 128 x 128 x 64 tile.
        config = replace(config, descriptors=False, block_n=128, num_stages=2)
    if entry.role == "compute":
        op.compute(symm, problem, experts, torch.empty(rows, problem.n, dtype=dtype, device=symm.device), config)
    else:
        op.fused(symm, problem, experts, symm.empty((rows, problem.n), dtype), replace(config, transport=entry.variant))


_LAUNCHERS: dict[str, Callable[[Entry, Any, "torch.dtype"], None]] = {
    "gemv_all_reduce": _gemv_all_reduce,
    "embedding_all_to_all": _embedding_all_to_all,
    "gemm_all_to_all": _gemm_all_to_all,
}

ENTRIES: tuple[Entry, ...] = (
    *_entries("gemv_all_reduce", {"two_phase": "fused", "one_shot": "fused", "rdma": "rdma", "compute": "compute"}),
    *_entries("embedding_all_to_all", {"peer": "fused", "staged": "staged", "rdma": "rdma", "compute": "compute"}),
    *_entries("gemm_all_to_all", {"peer": "fused", "staged": "staged", "rdma": "rdma", "compute": "compute"}),
)


def preload() -> None:
    """Import the operators once, before the build forks."""
    for operator in _LAUNCHERS:
        importlib.import_module(f"{__package__.rpartition('.')[0]}.{operator}")


def launch(entry: Entry, symm: Any) -> None:
    """Make the operator launch `entry`'s kernel on `symm`, a recording symmetric memory of `entry.world_size` ranks."""
    import torch

    _LAUNCHERS[entry.operator](entry, symm, getattr(torch, entry.dtype))
