"""GEMV + AllReduce: its problem, its configuration, and the plan that the kernels run. No Triton."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from . import plan, tuning
from .bounds import DTYPES
from .checks import MAX_GRID, check_count, check_launch, check_power
from .errors import require, require_world_size
from .symmetric import SymmetricMemory

ALGORITHMS = ("two_phase", "one_shot")
TRANSPORTS = ("peer", "rdma")
MAX_BATCH = 8
ONE_SHOT_BYTES = 1 << 19  # about what a link of 365 GB/s moves in one flag latency of 1.4 us
MATRIX_MIN = 16  # smallest side of a tl.dot


@dataclass(frozen=True)
class Problem:
    """Shapes of one call, the same on every rank.

    Attributes:
        m: rows of the weight, elements of each output vector.
        k: columns of this rank's shard of the weight, elements of this rank's input vectors.
        batch: input vectors, 1 to 8.
        dtype: of weight, input and output: float32, bfloat16 or float16; sums are float32.
        world_size: 1, 2, 4 or 8.
        bias, residual: whether [m] and [batch, m] tensors, the same on every rank, are added to the reduced result.
    """

    m: int
    k: int
    batch: int
    dtype: torch.dtype
    world_size: int
    bias: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        require_world_size(self.world_size)
        require(self.m >= 1, "m", self.m, "1 or more")
        require(self.k >= 1, "k", self.k, "1 or more")
        require(1 <= self.batch <= MAX_BATCH, "batch", self.batch, f"1 to {MAX_BATCH}")
        require(self.dtype in DTYPES, "dtype", str(self.dtype), "float32, bfloat16 or float16")

    @property
    def operations(self) -> int:
        """Float32 operations behind one output element: products and additions over all ranks, bias and residual."""
        return 2 * self.k * self.world_size + 2


@dataclass(frozen=True)
class Config:
    """How to run it; the same on every rank. `grid` physical work-groups of `num_warps` warps, tiles of block_m x block_k.

    `order` of owners in two_phase (`plan.ORDERS`, "interleaved" not over rdma); one_shot sends each tile to all at once.
    `transport`: "peer", or "rdma" (two_phase only), whose puts carry slices of `slice_tiles` tiles, `fenced` or with signal.
    """

    algorithm: str = "two_phase"
    block_m: int = 4
    block_k: int = 1024
    num_warps: int = 4
    num_stages: int = 3
    grid: int = 264
    order: str = "remote_first"
    transport: str = "peer"
    slice_tiles: int = 16
    fenced: bool = False

    def __post_init__(self) -> None:
        require(self.algorithm in ALGORITHMS, "algorithm", self.algorithm, ", ".join(ALGORITHMS))
        check_launch(self, TRANSPORTS)
        rdma_ok = self.transport != "rdma" or self.algorithm == "two_phase"
        require(rdma_ok, "algorithm over rdma", self.algorithm, "two_phase")
        check_power("block_m", self.block_m)
        check_power("block_k", self.block_k, MATRIX_MIN)
        check_count("num_stages", self.num_stages)
        check_count("slice_tiles", self.slice_tiles)


def tuning_key(problem: Problem) -> dict[str, str | int]:
    """What a tuned choice depends on: words that must match, sizes that should be near (`kernels/tuning`)."""
    return {
        "vectors": "one" if problem.batch == 1 else "several",
        "width": f"{problem.dtype.itemsize} bytes",
        "m": problem.m,
        "k": problem.k,
        "batch": problem.batch,
        "world_size": problem.world_size,
    }


def default_config(problem: Problem, symm: SymmetricMemory, role: str = "fused") -> Config:
    """The tuned choice of this GPU model, or a safe one; the same on every rank, since it depends on the problem and the
    device kind. `role`: "fused" or "compute"."""
    if symm.device.type == "cpu":
        return Config(block_m=16, block_k=256, slice_tiles=2, grid=min(4, symm.max_resident(4)))
    # One flag latency instead of two, unless the extra traffic costs more than that; tuning on one GPU leaves it open.
    extra_bytes = problem.batch * problem.m * 4 * (problem.world_size - 1)
    algorithm = "one_shot" if extra_bytes <= ONE_SHOT_BYTES else "two_phase"
    tuned = tuning.choose(symm, "gemv_all_reduce", role, tuning_key(problem))
    if tuned is not None:
        return Config(**{"algorithm": algorithm} | tuned | {"grid": min(tuned["grid"], MAX_GRID)})
    # A quarter of the warp slots: with up to 128 registers a thread all work-groups are resident.
    return Config(algorithm=algorithm, grid=min(MAX_GRID, symm.max_resident(4) // 4))


def blocks(problem: Problem, config: Config) -> Config:
    """The config with a tile that the batch's inner product can take."""
    if problem.batch == 1 or config.block_m >= MATRIX_MIN:
        return config
    return replace(config, block_m=MATRIX_MIN, block_k=min(config.block_k, 256))


def tiles_per_owner(problem: Problem, config: Config) -> tuple[int, int]:
    """(tiles, tiles each rank owns and reduces; the last owner may have fewer)."""
    tiles = -(-problem.m // config.block_m)
    return tiles, -(-tiles // problem.world_size)


def make_plan(problem: Problem, config: Config, rank: int) -> plan.Plan:
    """The logical work-groups (row tiles) of phase 1; a tile's destination is its owner."""
    config = blocks(problem, config)
    tiles, per_owner = tiles_per_owner(problem, config)
    number = np.arange(tiles)
    rows = np.minimum(config.block_m, problem.m - number * config.block_m)
    return plan.make(
        grid=min(config.grid, tiles),
        order=config.order,
        rank=rank,
        world_size=problem.world_size,
        dest=number // per_owner,
        bytes_read=rows * problem.k * problem.dtype.itemsize,
        bytes_sent=rows * problem.batch * 4,
        flops=2 * rows * problem.k * problem.batch,
    )
