"""GEMM + All-to-All: the combine side of a mixture-of-experts layer.

Every rank runs its experts (a grouped GEMM) on the rows that were dispatched to it, sorted by (expert, destination), and each
tile of the product goes straight from the work-group that computed it into the rows of the result of the rank that owns them.
Remote destinations first. Row counts live on the device: the host never learns them, and nothing waits for it to.

Why buffers may be reused without a host in between ("ready is not consumed"): as in `kernels/embedding_all_to_all.py`, results
land in the peer's `out`, so a rank raises `entered = e` at every peer when its kernel of call e starts, and a work-group
acquires that flag of a destination before its first store there. Stream order puts everything on the destination that read an
earlier result before it, and so does the tail wait for the stores of earlier calls, since counts and offsets may differ from
call to call. `counts` and `dst_offsets` are read by their own rank's kernel only, on its stream. Work-groups raise the flags of
all peers at the end of their tiles for them, also when the counts leave them none, so the receiver needs to know only the grid,
which the host sets from the capacities: a work-group waits for that of its own number on every peer, and all of them together
have stored everything. Over rdma slices are put straight into `out`, after the same flag; their source, the stage, is
overwritten by the next kernel of its own rank, after the sender's `quiet` at the end of this one.
Deadlock: as there, nothing waits before it has raised `entered`, nothing waits for `ready` before it has raised all of its own.
"""

from typing import Any

import torch

from . import collectives, plan, rdma
from . import decomposed as decomposition
from .bounds import sum_bound
from .checks import check_devices, check_ranks, check_tensor
from .errors import require
from .gemm_device import compute_kernel, fused_kernel
from .gemm_problem import (
    Config,
    Experts,
    Problem,
    default_config,
    destination_offsets,
    even_counts,
    grid_of,
    make_plan,
    tuning_key,
)
from .gemm_rdma_device import fused_kernel as rdma_kernel
from .symmetric import SymmetricMemory, require_symmetric
from .workspaces import rdma_workspace, workspace

__all__ = [
    "Config", "Experts", "Problem", "bulk", "compute", "decomposed", "default_config", "destination_offsets", "error_bound", "even_counts",
    "fused", "make_plan", "reference", "tuning_key",
]  # fmt: skip

_DESCRIPTOR_ALIGNMENT = 16


def _arguments(problem: Problem, experts: Experts, config: Config) -> dict[str, Any]:
    """What every kernel takes."""
    if config.descriptors:
        row_bytes = problem.k * problem.dtype.itemsize
        require(
            row_bytes % _DESCRIPTOR_ALIGNMENT == 0,
            "bytes of a row of x with descriptors",
            row_bytes,
            "a multiple of 16",
        )
        _allow_descriptors(experts.x.device)
    return {
        "x": experts.x,
        "weight": experts.weight,
        "counts": experts.counts,
        "scale": experts.x if experts.scale is None else experts.scale,
        "N": problem.n,
        "K": problem.k,
        "row_capacity": problem.rows,
        "WORLD": problem.world_size,
        "EXPERTS": problem.experts,
        "BLOCK_E": 1 << (problem.experts - 1).bit_length(),
        "BLOCK_W": problem.world_size,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
        "STAGES": config.num_stages,
        "EVEN_K": problem.k % config.block_k == 0,
        "SCALED": problem.scaled,
        "DESCRIPTORS": config.descriptors,
    }


def _allow_descriptors(device: torch.device) -> None:
    """Descriptors made inside a kernel live in scratch that Triton asks the host for."""
    if device.type == "cuda":
        import triton

        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=device))


def _check(symm: SymmetricMemory, problem: Problem, experts: Experts, out: torch.Tensor, config: Config) -> None:
    check_ranks(symm, "gemm_all_to_all", problem.world_size, (problem, config))
    check_devices(symm.device, out=out, **vars(experts))
    experts.check(problem)
    check_tensor("out", out, (problem.rows_out, problem.n), problem.dtype)


def fused(
    symm: SymmetricMemory, problem: Problem, experts: Experts, out: torch.Tensor, config: Config | None = None
) -> torch.Tensor:
    """One fused launch on this rank; every rank calls with the same problem and config.

    Args:
        symm: this rank's symmetric memory.
        problem: shapes and dtype.
        experts: this rank's rows, weights, counts and where the rows go.
        out: [rows_out, n], a symmetric tensor (from `symm.empty`); rows that no block covers are left alone.
        config: block sizes, grid, transport; None takes the default one.

    Returns: `out`, complete when the launch is. Raises `ProblemError` for shapes, dtypes, world sizes or grids outside what is
    allowed.
    """
    config = config or default_config(problem, symm)
    _check(symm, problem, experts, out, config)
    require_symmetric(symm, "out", out)
    args = _arguments(problem, experts, config) | {
        "dst_offsets": experts.dst_offsets,
        "out": out,
        "out_capacity": problem.rows_out,
        "rank": symm.rank,
        "first_dest": plan.first_destination(config.order, symm.rank, problem.world_size),
    }
    if config.transport == "rdma":
        kernel, more = rdma.linked(rdma_kernel, symm), _rdma_arguments(symm, problem, config)
    else:
        kernel, more = fused_kernel, _peer_arguments(symm, problem, config)
    symm.launch(
        kernel,
        grid_of(problem, config),
        args | more,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        waits=problem.world_size > 1,
    )
    return out


def _peer_arguments(symm: SymmetricMemory, problem: Problem, config: Config) -> dict[str, Any]:
    space = workspace(symm, "gemm_all_to_all")
    staged = config.transport == "staged"
    return {
        "stage": space.stage_of(problem.rows * problem.n if staged else 1, problem.dtype),
        "ready": space.ready,
        "entered": space.entered,
        "word": space.word,
        "bases": symm.bases,
        "STAGED": staged,
        "INTERLEAVED": config.order == "interleaved",
        "MAX_WGS": space.ready.shape[1],
    }


def _rdma_arguments(symm: SymmetricMemory, problem: Problem, config: Config) -> dict[str, Any]:
    space = rdma_workspace(
        symm,
        "gemm_all_to_all",
        max_slices=problem.rows // (config.block_m * config.group_m) + problem.experts,
        stage_bytes=problem.rows * problem.n * problem.dtype.itemsize,
        landing_bytes=0,
    )
    return {
        "stage": space.stage.view(problem.dtype),
        "slice_done": space.slice_done,
        "slice_ready": space.slice_ready,
        "entered": space.entered,
        "word": space.word,
        "max_slices": space.slice_ready.shape[1],
        "FENCED": config.fenced,
    }


def compute(
    symm: SymmetricMemory,
    problem: Problem,
    experts: Experts,
    out: torch.Tensor,
    config: Config | None = None,
    dest: int | None = None,
) -> torch.Tensor:
    """The compute half of `bulk`: the products into out [rows, n], sorted by (destination, expert), ready to be sent.

    `dest` limits it to the rows of one destination, which keep their place in `out`; None takes all.
    """
    config = config or default_config(problem, symm, "compute")
    check_tensor("out", out, (problem.rows, problem.n), problem.dtype)
    first, number = (0, problem.world_size) if dest is None else (dest, 1)
    args = _arguments(problem, experts, config) | {"out": out, "first_dest": first, "dests": number}
    symm.launch(
        compute_kernel,
        grid_of(problem, config),
        args,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        waits=False,
    )
    return out


def splits(symm: SymmetricMemory, experts: Experts) -> tuple[list[int], list[int]]:
    """(rows sent to each rank, rows received from each rank) on the host: a collective and a synchronisation, which library
    collectives need and `fused` does not."""
    sent = experts.counts.sum(0, dtype=torch.int64)
    received = torch.empty_like(sent)
    collectives.all_to_all(symm, received, sent)
    return sent.tolist(), received.tolist()


def bulk(
    symm: SymmetricMemory,
    problem: Problem,
    experts: Experts,
    out: torch.Tensor,
    config: Config | None = None,
    known_splits: tuple[list[int], list[int]] | None = None,
) -> torch.Tensor:
    """The baseline: the compute kernel, then the library's all-to-all. `out` as in `fused`, but any tensor.

    The rows arrive ordered by (source rank, expert), whatever `dst_offsets` says. `known_splits`: what `splits` returns, where
    the caller knows it without asking the device (even counts), so that a graph can capture the call.
    """
    config = config or default_config(problem, symm)
    _check(symm, problem, experts, out, config)
    sent, received = known_splits or splits(symm, experts)
    send = torch.empty((problem.rows, problem.n), dtype=problem.dtype, device=symm.device)
    compute(symm, problem, experts, send, config)
    collectives.all_to_all(symm, out[: sum(received)], send[: sum(sent)], received, sent)
    return out


def decomposed(
    symm: SymmetricMemory,
    problem: Problem,
    experts: Experts,
    out: torch.Tensor,
    config: Config | None = None,
    known_splits: tuple[list[int], list[int]] | None = None,
) -> torch.Tensor:
    """The same by decomposition (`kernels/decomposed.py`): one destination's rows after the other; arguments as `bulk`."""
    config = config or default_config(problem, symm, "compute")
    _check(symm, problem, experts, out, config)
    sent, received = known_splits or splits(symm, experts)
    products = torch.empty((problem.rows, problem.n), dtype=problem.dtype, device=symm.device)

    def chunk(dest: int) -> torch.Tensor:
        compute(symm, problem, experts, products, config, dest)
        return products[sum(sent[:dest]) : sum(sent[: dest + 1])]

    def part(source: int) -> torch.Tensor:
        return out[sum(received[:source]) : sum(received[: source + 1])]

    def place(source: int, arrived: torch.Tensor) -> None:
        if source == symm.rank:  # the others' rows arrive in place
            part(source).copy_(arrived)

    decomposition.all_to_all(symm, chunk, receive=part, place=place)
    return out


def reference(problem: Problem, experts: list[Experts], rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Plain torch in float64 from all ranks' operands: (what `rank` ends with, sum of absolute values, bool [rows_out]: rows
    that some block covers)."""
    exact = torch.zeros((problem.rows_out, problem.n), dtype=torch.float64)
    magnitude, covered = torch.zeros_like(exact), torch.zeros(problem.rows_out, dtype=torch.bool)
    for theirs in experts:
        row = 0
        for expert, counts in enumerate(theirs.counts.tolist()):
            for dest, count in enumerate(counts):
                if dest == rank and count:
                    place = slice(int(theirs.dst_offsets[expert, dest]), int(theirs.dst_offsets[expert, dest]) + count)
                    x, w = theirs.x[row : row + count].double(), theirs.weight[expert].double()
                    factor = 1 if theirs.scale is None else theirs.scale[row : row + count].double()[:, None]
                    exact[place] = x @ w.T * factor
                    magnitude[place] = x.abs() @ w.abs().T * abs(factor)
                    covered[place] = True
                row += count
    return exact, magnitude, covered


def error_bound(problem: Problem, exact: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Largest allowed absolute error of `fused` per element (`kernels/bounds.py` states the formula)."""
    return sum_bound(exact, magnitude, 2 * problem.k + problem.scaled, problem.dtype)
