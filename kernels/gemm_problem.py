"""GEMM + All-to-All: its problem, its configuration, its operands, and the plan that the kernels run. No Triton."""

from dataclasses import dataclass

import numpy as np
import torch

from . import plan, tuning
from .bounds import DTYPES
from .checks import check_count, check_each, check_launch, check_power, check_tensor
from .errors import require, require_world_size
from .symmetric import SymmetricMemory

MAX_EXPERTS = 256
BLOCK_MIN = 16  # smallest side of a tl.dot


@dataclass(frozen=True)
class Problem:
    """Shapes of one call, the same on every rank. How many rows go where is known on the device only.

    Attributes:
        rows: rows that x has room for; at most that many are used.
        rows_out: rows that the result has room for on every rank.
        n, k: an expert's weight is [n, k].
        experts: experts of one rank.
        dtype: of x, weight and result: float32, bfloat16 or float16; sums are float32.
        world_size: 1, 2, 4 or 8.
        scaled: whether each row of x comes with a float32 factor (router weight) for its result.
    """

    rows: int
    rows_out: int
    n: int
    k: int
    experts: int
    dtype: torch.dtype
    world_size: int
    scaled: bool = False

    def __post_init__(self) -> None:
        require_world_size(self.world_size)
        for name in ("rows", "rows_out", "n", "k"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        require(1 <= self.experts <= MAX_EXPERTS, "experts", self.experts, f"1 to {MAX_EXPERTS}")
        require(self.dtype in DTYPES, "dtype", str(self.dtype), "float32, bfloat16 or float16")


@dataclass(frozen=True)
class Config:
    """How to run it; the same on every rank.

    Attributes:
        block_m, block_n, block_k: tile of the result and depth of a step; powers of two, 16 or more.
        group_m: rows of tiles that run together for the L2 cache's sake, and that one put of the rdma transport carries.
        num_warps, num_stages, grid: size, prefetch depth and number of the physical work-groups.
        descriptors: load operands through tensor descriptors (TMA on Hopper); needs rows of a multiple of 16 bytes.
        order: of destinations: "remote_first", "interleaved" (not over rdma) or "oblivious" (`plan.ORDERS`).
        transport: "peer" (zero-copy stores into the peer's result), "staged" (through own memory: the ablation) or "rdma".
        fenced: rdma sends put, fence and flag one by one, as the paper does, instead of a put with signal.
    """

    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    group_m: int = 8
    num_warps: int = 8
    num_stages: int = 3
    grid: int = 132
    descriptors: bool = False
    order: str = "remote_first"
    transport: str = "peer"
    fenced: bool = False

    def __post_init__(self) -> None:
        check_launch(self)
        for name in ("block_m", "block_n", "block_k"):
            check_power(name, getattr(self, name), BLOCK_MIN)
        check_count("group_m", self.group_m)
        check_count("num_stages", self.num_stages)


def tuning_key(problem: Problem) -> dict[str, str | int]:
    """What a tuned choice depends on: words that must match, sizes that should be near (`kernels/tuning`)."""
    tma = torch.version.hip is None and problem.k * problem.dtype.itemsize % 16 == 0
    return {
        "width": f"{problem.dtype.itemsize} bytes",
        "descriptors": "yes" if tma and problem.dtype.itemsize == 2 else "no",
        "rows": problem.rows,
        "n": problem.n,
        "k": problem.k,
        "experts": problem.experts,
        "world_size": problem.world_size,
    }


def default_config(problem: Problem, symm: SymmetricMemory, role: str = "fused") -> Config:
    """The tuned choice of this GPU model, or a safe one; the same on every rank, since it depends on the problem and the
    device kind. `role`: "fused" or "compute"."""
    if symm.device.type == "cpu":
        return Config(block_m=32, block_n=32, block_k=32, group_m=2, num_stages=1, grid=min(4, symm.max_resident(8)))
    tuned = tuning.choose(symm, "gemm_all_to_all", role, tuning_key(problem))
    if tuned is not None:
        return Config(**tuned)
    if problem.dtype == torch.float32:  # no tensor cores at full precision
        return Config(block_m=64, block_n=64, block_k=32, num_warps=4, grid=symm.max_resident(16) // 4)
    tma = torch.version.hip is None and problem.k * problem.dtype.itemsize % 16 == 0
    return Config(grid=symm.max_resident(16) // 4, descriptors=tma)


def grid_of(problem: Problem, config: Config) -> int:
    """Physical work-groups of a launch: no more than there can be tiles, the same on every rank."""
    blocks = problem.experts * problem.world_size
    tiles = min(problem.rows, problem.rows // config.block_m + blocks) * -(-problem.n // config.block_n)
    return min(config.grid, tiles)


def even_counts(problem: Problem) -> np.ndarray:
    """int32 [experts, world_size]: all rows of x in equal parts; the first blocks get what does not divide."""
    blocks = problem.experts * problem.world_size
    share, extra = divmod(problem.rows, blocks)
    return (share + (np.arange(blocks) < extra)).astype(np.int32).reshape(problem.experts, problem.world_size)


def destination_offsets(all_counts: torch.Tensor, rank: int) -> torch.Tensor:
    """Where each block of `rank`'s rows starts in its destination's result, when that is ordered by (source rank, expert).

    Args:
        all_counts: int [world_size, experts, world_size], every rank's `counts`; on any device, nothing is synchronised.

    Returns: int32 [experts, world_size].
    """
    of_source = all_counts.sum(1)
    earlier_sources = (of_source.cumsum(0) - of_source)[rank]
    earlier_experts = all_counts[rank].cumsum(0) - all_counts[rank]
    return (earlier_sources + earlier_experts).to(torch.int32)


def make_plan(problem: Problem, config: Config, rank: int, counts: np.ndarray | None = None) -> plan.Plan:
    """The logical work-groups of one rank: (destination, expert, tile), numbered in this order.

    Args:
        counts: [experts, world_size], rows of each expert for each destination; None: `even_counts`.
    """
    rows = np.asarray(even_counts(problem) if counts is None else counts, dtype=np.int64).T  # [destination, expert]
    high, wide = -(-rows // config.block_m), -(-problem.n // config.block_n)
    tiles = (high * wide).reshape(-1)
    block = np.repeat(np.arange(tiles.size), tiles)
    within = np.arange(len(block)) - (np.cumsum(tiles) - tiles)[block]
    block_high = high.reshape(-1)[block]
    first = within // (config.group_m * wide) * config.group_m
    group = np.minimum(block_high - first, config.group_m)
    inside = within % (config.group_m * wide)
    tile_m, tile_n = first + inside % group, inside // group
    tile_rows = np.minimum(config.block_m, rows.reshape(-1)[block] - tile_m * config.block_m)
    tile_columns = np.minimum(config.block_n, problem.n - tile_n * config.block_n)
    size = problem.dtype.itemsize
    slices = -(-high // config.group_m).reshape(-1)
    return plan.make(
        grid=grid_of(problem, config),
        order=config.order,
        rank=rank,
        world_size=problem.world_size,
        dest=block // problem.experts,
        bytes_read=(tile_rows + tile_columns) * problem.k * size,
        bytes_sent=tile_rows * tile_columns * size,
        flops=2 * tile_rows * tile_columns * problem.k,
        slice_of=(np.cumsum(slices) - slices)[block] + tile_m // config.group_m,
    )


@dataclass(frozen=True)
class Experts:
    """This rank's operands.

    Attributes:
        x: [rows, k], sorted by (expert, destination); rows behind the last counted one are not read for a result.
        weight: [experts, n, k], as torch.nn.Linear keeps it.
        counts: int32 [experts, world_size] on the device: rows for each destination; zero is allowed. Their sum must not
            exceed `rows`.
        dst_offsets: int32 [experts, world_size] on the device: row of the destination's result where the block starts. Blocks
            must not overlap nor end behind `rows_out`: the emulator and Triton's debug mode stop at a row outside.
        scale: float32 [rows] if the problem is scaled, else None.
    """

    x: torch.Tensor
    weight: torch.Tensor
    counts: torch.Tensor
    dst_offsets: torch.Tensor
    scale: torch.Tensor | None = None

    def check(self, problem: Problem) -> None:
        """Shapes and dtypes; contents live on the device and are not looked at."""
        blocks = (problem.experts, problem.world_size)
        check_tensor("x", self.x, (problem.rows, problem.k), problem.dtype)
        check_tensor("weight", self.weight, (problem.experts, problem.n, problem.k), problem.dtype)
        check_tensor("counts", self.counts, blocks, torch.int32)
        check_tensor("dst_offsets", self.dst_offsets, blocks, torch.int32)
        require((self.scale is not None) == problem.scaled, "problem.scaled", problem.scaled, "whether scale is passed")
        if self.scale is not None:
            check_tensor("scale", self.scale, (problem.rows,), torch.float32)

    def check_contents(self, problem: Problem) -> None:
        """Blocks inside of `x` and of the result. Reads every value, so for tensors of the CPU only."""
        counts, places = self.counts.long(), self.dst_offsets.long()
        check_each(counts >= 0, "counts", counts, "0 or more")
        require(
            int(counts.sum()) <= problem.rows,
            "sum of counts",
            int(counts.sum()),
            f"at most {problem.rows}, the rows of x",
        )
        inside = (places >= 0) & (places + counts <= problem.rows_out) | (counts == 0)
        allowed = f"0 or more, and with the block's rows at most {problem.rows_out}, the rows of the result"
        check_each(inside, "dst_offsets", places, allowed)
        # Whether blocks of one destination overlap: those of this rank only, other ranks' are not known here.
        earlier = torch.ones(len(counts), len(counts), dtype=torch.bool).tril(-1)[:, :, None]
        apart = (places[:, None] >= (places + counts)[None]) | (places[None] >= (places + counts)[:, None])
        empty = (counts == 0)[:, None] | (counts == 0)[None]
        check_each((apart | empty | ~earlier).all(1), "dst_offsets", places, "outside of the blocks of earlier experts")
