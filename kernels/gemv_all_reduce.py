"""GEMV + AllReduce: `y = sum over ranks of W_r @ x_r` (+ bias, + residual), a row-parallel linear layer at decode.

`two_phase` is the paper's direct AllReduce: each rank computes the full-length partial vector, tile by tile, remote owners'
tiles first; a tile goes straight into its owner's stage; the owner adds the ranks' partials in rank order and stores the
result into every rank's output. `one_shot` sends each partial tile to every rank, which adds for itself: one flag latency
instead of two, world_size times the traffic, so for small M.

Why buffers may be reused without a host in between ("ready is not consumed"):
* two_phase, stage: a rank leaves call e only after its work-groups have acquired every owner's `done` flag, which the owner
  released after reading its stage. So when it stores into a stage in call e + 1, the reads of call e happened before. One
  stage is enough.
* two_phase, out: an owner stores into a peer's `out` only after acquiring that peer's partial of the same tile, which the
  peer sent from inside call e, after (stream order) whatever read the result of call e - 1 on it.
* one_shot, stage: a rank in call e has acquired flags of call e - 1 from every peer, so every peer had left call e - 2.
  Two stages, chosen by the epoch's parity, are enough: fixed halves of one buffer, which calls of other shapes in between
  must not move. `out` is written by its own rank only.
* two_phase over rdma: partials and results land in buffers of the receiver, whose kernel of the same call reads them, so the
  same two arguments hold for them; what slices are sent from is overwritten by the next kernel of the own rank, after the
  sender's `quiet`. (By then every peer has acquired the flag of each put; OpenSHMEM promises the source only after `quiet`,
  though.)
No deadlock: a work-group computes and sends everything it has before it waits, and waits only for the work-groups with its
own number on other ranks (over rdma: for slices of any, its own rank's too), all of which are resident.
"""

from dataclasses import dataclass
from math import gcd

import torch

from . import collectives, plan, rdma
from . import decomposed as decomposition
from .bounds import sum_bound
from .checks import MAX_GRID, check_devices, check_ranks, check_tensor
from .errors import require
from .gemv_device import compute_kernel, one_shot_kernel, two_phase_kernel
from .gemv_problem import (
    MATRIX_MIN,
    MAX_BATCH,
    Config,
    Problem,
    blocks,
    default_config,
    make_plan,
    tiles_per_owner,
    tuning_key,
)
from .gemv_rdma_device import two_phase_kernel as rdma_kernel
from .symmetric import SymmetricMemory, require_symmetric
from .workspaces import rdma_workspace

__all__ = [
    "MAX_BATCH", "Config", "Problem", "bulk", "compute", "decomposed", "default_config", "error_bound", "fused", "make_plan", "reference",
    "tiles_per_owner", "tuning_key",
]  # fmt: skip


def _constants(problem: Problem, config: Config) -> dict[str, object]:
    return {
        "M": problem.m,
        "K": problem.k,
        "BATCH": problem.batch,
        "BLOCK_B": 1 if problem.batch == 1 else MATRIX_MIN,
        "BLOCK_M": config.block_m,
        "BLOCK_K": config.block_k,
        "EVEN_K": problem.k % config.block_k == 0,
        "ALIGN": gcd(problem.k, 16),
        "STAGES": config.num_stages,
    }


def _check(
    problem: Problem, config: Config, symm: SymmetricMemory, weight: torch.Tensor, x: torch.Tensor, extras: dict
) -> None:
    check_ranks(symm, "gemv_all_reduce", problem.world_size, (problem, config))
    vectors = (problem.batch, problem.m)
    shapes = {"weight": (problem.m, problem.k), "x": (problem.batch, problem.k)}
    shapes |= {"bias": (problem.m,), "residual": vectors, "out": vectors}
    operands = {"weight": weight, "x": x, **extras}
    check_devices(symm.device, **operands)
    for name, tensor in operands.items():
        check_tensor(name, tensor, shapes[name], problem.dtype)


@dataclass
class _Workspace:
    """Per rank, grown collectively: stage, flags and the epoch word of one algorithm."""

    stage: torch.Tensor
    ready: torch.Tensor
    done: torch.Tensor
    word: torch.Tensor


def _workspace(symm: SymmetricMemory, problem: Problem, algorithm: str) -> _Workspace:
    half = -(-problem.world_size * problem.batch * problem.m // 16) * 16  # so that the second half is aligned, too
    need = half * (2 if algorithm == "one_shot" else 1)
    spaces = symm.state.setdefault("gemv_all_reduce", {})
    space = spaces.get(algorithm)
    if space is None or space.stage.numel() < need:
        name = f"gemv_all_reduce.{algorithm}"
        if space is None:
            flags = (symm.world_size, MAX_GRID)
            space = _Workspace(
                stage=torch.empty(0),
                ready=symm.empty(flags, torch.int64, f"{name}.ready"),
                done=symm.empty(flags, torch.int64, f"{name}.done"),
                word=symm.empty(1, torch.int64, f"{name}.epoch"),
            )
        # A larger stage starts a new one: no rank can still be using the old one's place in the heap for anything else.
        space.stage = symm.empty(need, torch.float32, f"{name}.stage")
        spaces[algorithm] = space
    return space


def fused(
    symm: SymmetricMemory,
    problem: Problem,
    weight: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """One fused launch on this rank; every rank calls with the same problem and config.

    Args:
        symm: this rank's symmetric memory.
        problem: shapes and dtype.
        weight: [m, k], this rank's columns of the layer's weight.
        x: [batch, k], this rank's slice of the input.
        out: [batch, m], a symmetric tensor (from `symm.empty`; any tensor will do for one_shot and over rdma); all ranks end
            with the same bits in it. It may be `residual` itself, but share no memory with the other operands.
        bias: [m] or None; residual: [batch, m] or None; added once to the reduced result.
        config: block sizes, algorithm and grid; None takes the tuned or default one.

    Returns: `out`. Raises `ProblemError` for shapes, dtypes, world sizes or grids outside what is allowed.
    """
    config = blocks(problem, config or default_config(problem, symm))
    extras = {n: t for n, t in (("bias", bias), ("residual", residual), ("out", out)) if t is not None}
    require((bias is not None) == problem.bias and (residual is not None) == problem.residual, "problem.bias, problem.residual",
            (problem.bias, problem.residual), "what is passed")  # fmt: skip
    _check(problem, config, symm, weight, x, extras)
    tiles, per_owner = tiles_per_owner(problem, config)
    args = {
        "weight": weight, "x": x, "bias": bias if bias is not None else x, "residual": residual if residual is not None else x,
        "out": out, "rank": symm.rank, "WORLD": problem.world_size, "HAS_BIAS": problem.bias, "HAS_RESIDUAL": problem.residual,
        **_constants(problem, config),
    }  # fmt: skip
    if config.algorithm == "two_phase":
        first_owner = plan.first_destination(config.order, symm.rank, problem.world_size)
        args |= {"per_owner": per_owner, "first": min(first_owner * per_owner, tiles)}
    if config.transport == "rdma":
        kernel, more = rdma.linked(rdma_kernel, symm), _rdma_arguments(symm, problem, config)
    else:
        space = _workspace(symm, problem, config.algorithm)
        more = {
            "stage": space.stage, "ready": space.ready, "word": space.word, "bases": symm.bases, "MAX_WGS": MAX_GRID
        }  # fmt: skip
        if config.algorithm == "two_phase":
            require_symmetric(symm, "out", out)
            kernel = two_phase_kernel
            more |= {"done": space.done, "INTERLEAVED": config.order == "interleaved"}
        else:
            kernel = one_shot_kernel
            more["half_size"] = space.stage.numel() // 2
    waits = problem.world_size > 1
    symm.launch(kernel, min(config.grid, tiles), args | more, num_warps=config.num_warps, waits=waits)
    return out


def _rdma_arguments(symm: SymmetricMemory, problem: Problem, config: Config) -> dict[str, object]:
    """Stages, landing places and flags of the rdma transport, grown collectively; a landing has a place for each source."""
    tiles, per_owner = tiles_per_owner(problem, config)
    partial, reduced = (tiles * config.block_m * problem.batch * size for size in (4, problem.dtype.itemsize))
    slices = -(-per_owner // config.slice_tiles)
    landed = per_owner * problem.world_size * config.block_m * problem.batch * 4
    space = rdma_workspace(symm, "gemv_all_reduce", slices, partial, landed)
    results = rdma_workspace(symm, "gemv_all_reduce.results", slices, reduced, reduced)
    return {
        "stage": space.stage.view(torch.float32),
        "landing": space.landing.view(torch.float32),
        "result_stage": results.stage.view(problem.dtype),
        "result_landing": results.landing.view(problem.dtype),
        "slice_done": space.slice_done,
        "ready": space.slice_ready,
        "done": results.slice_ready,
        "word": space.word,
        "max_slices": space.slice_ready.shape[1],
        "SLICE_TILES": config.slice_tiles,
        "FENCED": config.fenced,
    }


def compute(
    symm: SymmetricMemory,
    problem: Problem,
    weight: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor,
    config: Config | None = None,
) -> torch.Tensor:
    """This rank's partial result only ([batch, m], not reduced): the compute half of `bulk`."""
    config = blocks(problem, config or default_config(problem, symm, "compute"))
    _check(problem, config, symm, weight, x, {"out": out})
    grid = min(config.grid, -(-problem.m // config.block_m))
    args = {"weight": weight, "x": x, "out": out, **_constants(problem, config)}
    symm.launch(compute_kernel, grid, args, num_warps=config.num_warps, waits=False)
    return out


def bulk(
    symm: SymmetricMemory,
    problem: Problem,
    weight: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """The baseline: the same compute kernel, then the library's all-reduce; arguments as `fused`, `out` need not be symmetric."""
    compute(symm, problem, weight, x, out, config)
    collectives.all_reduce(symm, out)
    for extra in (bias, residual):
        if extra is not None:
            out += extra
    return out


def decomposed(
    symm: SymmetricMemory,
    problem: Problem,
    weight: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """The same by decomposition (`kernels/decomposed.py`); arguments as `bulk`.

    Reduce-scatter: one owner's rows after the other, float32 partial results, added in rank order; then an all-gather.
    """
    config = blocks(problem, config or default_config(problem, symm, "compute"))
    _check(problem, config, symm, weight, x, {"out": out})
    share = -(-problem.m // problem.world_size)
    rows = [slice(min(r * share, problem.m), min((r + 1) * share, problem.m)) for r in range(problem.world_size)]

    def empty(owner: int, dtype: torch.dtype) -> torch.Tensor:
        size = rows[owner].stop - rows[owner].start
        return torch.empty((problem.batch, size), dtype=dtype, device=symm.device)

    def chunk(owner: int) -> torch.Tensor:
        part = empty(owner, torch.float32)
        own = {"weight": weight[rows[owner]], "x": x, "out": part, "M": part.shape[1]}
        grid = min(config.grid, max(1, -(-part.shape[1] // config.block_m)))
        symm.launch(compute_kernel, grid, _constants(problem, config) | own, num_warps=config.num_warps, waits=False)
        return part

    parts: dict[int, torch.Tensor] = {}
    decomposition.all_to_all(symm, chunk, lambda _: empty(symm.rank, torch.float32), parts.__setitem__)
    total = sum(parts[rank] for rank in range(problem.world_size))
    if bias is not None:
        total = total + bias[rows[symm.rank]]
    if residual is not None:
        total = total + residual[:, rows[symm.rank]]

    def place(owner: int, reduced: torch.Tensor) -> None:
        out[:, rows[owner]] = reduced

    decomposition.all_gather(symm, total.to(problem.dtype), lambda owner: empty(owner, problem.dtype), place)
    return out


def reference(
    weights: list[torch.Tensor],
    xs: list[torch.Tensor],
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain torch in float64 from all ranks' operands: (result, sum of absolute values), [batch, m] each."""
    extras = [t.double() for t in (bias, residual) if t is not None]
    exact = sum(x.double() @ w.double().T for w, x in zip(weights, xs, strict=True)) + sum(extras)
    magnitude = sum(x.double().abs() @ w.double().abs().T for w, x in zip(weights, xs, strict=True))
    return exact, magnitude + sum(t.abs() for t in extras)


def error_bound(problem: Problem, exact: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Largest allowed absolute error of `fused` per element (`kernels/bounds.py` states the formula)."""
    return sum_bound(exact, magnitude, problem.operations, problem.dtype)
