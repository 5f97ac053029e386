"""Embedding + All-to-All: its problem, its configuration, its operands, and the plan that the kernels run. No Triton."""

from dataclasses import dataclass

import numpy as np
import torch

from . import plan, tuning
from .bounds import DTYPES
from .checks import MAX_GRID, check_count, check_each, check_launch, check_power, check_tensor
from .errors import require, require_world_size
from .symmetric import SymmetricMemory

POOLING_MODES = ("sum", "mean")
INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Problem:
    """Shapes of one call, the same on every rank. How many rows a table has is the owner's business.

    Attributes:
        batch: bags per table, of the global batch; split over the ranks, the first `batch % world_size` get one more.
        tables: tables that each rank owns: one number for all, or one per rank.
        dim: length of a row.
        dtype: of rows and result: float32, bfloat16 or float16; sums are float32.
        world_size: 1, 2, 4 or 8.
        pooling_mode: "sum", or "mean": the sum divided by the bag's number of indices; an empty bag gives zeros.
        weighted: whether each index comes with a float32 weight that its row is multiplied by.
        index_dtype: of indices and offsets: int32 or int64.
    """

    batch: int
    tables: int | tuple[int, ...]
    dim: int
    dtype: torch.dtype
    world_size: int
    pooling_mode: str = "sum"
    weighted: bool = False
    index_dtype: torch.dtype = torch.int64

    def __post_init__(self) -> None:
        require_world_size(self.world_size)
        if isinstance(self.tables, int):
            object.__setattr__(self, "tables", (self.tables,) * self.world_size)
        require(len(self.tables) == self.world_size and min(self.tables) >= 1, "tables", self.tables,
                f"1 or more on each of {self.world_size} ranks")  # fmt: skip
        require(self.batch >= 1, "batch", self.batch, "1 or more")
        require(self.dim >= 1, "dim", self.dim, "1 or more")
        require(self.dtype in DTYPES, "dtype", str(self.dtype), "float32, bfloat16 or float16")
        require(self.pooling_mode in POOLING_MODES, "pooling_mode", self.pooling_mode, ", ".join(POOLING_MODES))
        require(self.index_dtype in INDEX_DTYPES, "index_dtype", str(self.index_dtype), "int32 or int64")

    @property
    def all_tables(self) -> int:
        """Tables of all ranks."""
        return sum(self.tables)

    @property
    def batch_max(self) -> int:
        """Bags of the largest part of the batch: what `out` has room for on every rank."""
        return -(-self.batch // self.world_size)

    def first_table(self, rank: int) -> int:
        """Where a rank's tables start in the result."""
        return sum(self.tables[:rank])

    def part(self, rank: int) -> tuple[int, int]:
        """(first bag, bags) of the batch that a rank ends with."""
        share, extra = divmod(self.batch, self.world_size)
        return rank * share + min(rank, extra), share + (rank < extra)


def part_size(batch: int, rank: int, world_size: int) -> int:
    """Bags in a rank's part of the batch (`Problem.part`), in closed form, since a traced batch may be symbolic."""
    return (batch - rank + world_size - 1) // world_size


@dataclass(frozen=True)
class Config:
    """How to run it; the same on every rank.

    Attributes:
        block_b, block_d: bags of one logical work-group and columns pooled at a time; powers of two.
        unroll: rows of a bag whose loads are in flight together.
        num_warps, grid: size and number of the physical work-groups.
        order: of destinations: "remote_first", "interleaved" (not over rdma) or "oblivious" (`plan.ORDERS`).
        transport: "peer" (zero-copy stores into the peer's result), "staged" (through own memory: the ablation) or "rdma".
        slice_blocks: blocks of bags, times the rank's tables, that one put of the rdma transport carries.
        fenced: rdma sends put, fence and flag one by one, as the paper does, instead of a put with signal.
    """

    block_b: int = 4
    block_d: int = 128
    unroll: int = 4
    num_warps: int = 4
    grid: int = 1056
    order: str = "remote_first"
    transport: str = "peer"
    slice_blocks: int = 4
    fenced: bool = False

    def __post_init__(self) -> None:
        check_launch(self)
        check_power("block_b", self.block_b)
        check_power("block_d", self.block_d)
        check_count("unroll", self.unroll)
        check_count("slice_blocks", self.slice_blocks)


def tuning_key(problem: Problem) -> dict[str, str | int]:
    """What a tuned choice depends on: words that must match, sizes that should be near (`kernels/tuning`)."""
    return {
        "width": f"{problem.dtype.itemsize} bytes",
        "dim": problem.dim,
        "batch": problem.batch,
        "tables": max(problem.tables),
        "world_size": problem.world_size,
    }


def default_config(problem: Problem, symm: SymmetricMemory, role: str = "fused") -> Config:
    """The tuned choice of this GPU model, or a safe one; the same on every rank, since it depends on the problem and the
    device kind. `role`: "fused" or "compute"."""
    block_d = min(1024, 1 << (problem.dim - 1).bit_length())
    if symm.device.type == "cpu":
        return Config(block_b=4, block_d=block_d, unroll=2, grid=min(4, symm.max_resident(4)))
    tuned = tuning.choose(symm, "embedding_all_to_all", role, tuning_key(problem), waiting_part=2)
    if tuned is not None:
        return Config(**tuned | {"block_d": block_d, "grid": min(tuned["grid"], MAX_GRID)})
    lanes = max(1, block_d * problem.dtype.itemsize // 16)  # threads that load one row, 16 bytes each
    block_b = min(16, max(1, 128 // lanes))
    return Config(block_b=block_b, block_d=block_d, grid=symm.max_resident(4) // 2)


def logical_starts(problem: Problem, config: Config, rank: int) -> np.ndarray:
    """First logical work-group of each destination on `rank`, and their number last: int64 [world_size + 1]."""
    bags = np.array([problem.part(dest)[1] for dest in range(problem.world_size)])
    return np.concatenate([[0], np.cumsum(-(-bags // config.block_b) * problem.tables[rank])])


def grid_of(problem: Problem, config: Config) -> int:
    """Physical work-groups of a launch: no more than the busiest rank has logical ones, the same on every rank."""
    return min(config.grid, max(int(logical_starts(problem, config, r)[-1]) for r in range(problem.world_size)))


def make_plan(problem: Problem, config: Config, rank: int, lengths: int | np.ndarray) -> plan.Plan:
    """The logical work-groups of one rank: (destination, block of bags, table), numbered in this order.

    Args:
        lengths: indices per bag: one number, or [tables of this rank, batch].
    """
    tables = problem.tables[rank]
    lengths = np.broadcast_to(lengths, (tables, problem.batch))
    starts = logical_starts(problem, config, rank)
    dest = np.repeat(np.arange(problem.world_size), np.diff(starts))
    within = np.arange(starts[-1]) - starts[dest]
    block, table = within // tables, within % tables
    totals = np.concatenate([np.zeros((tables, 1), np.int64), np.cumsum(lengths, axis=1)], axis=1)
    first, bags = np.array([problem.part(d) for d in range(problem.world_size)]).T
    low = first[dest] + block * config.block_b
    high = np.minimum(low + config.block_b, (first + bags)[dest])
    rows = totals[table, high] - totals[table, low]
    size, index_size = problem.dtype.itemsize, problem.index_dtype.itemsize
    slices = -(-np.diff(starts) // (tables * config.slice_blocks))
    slice_base = np.cumsum(slices) - slices
    return plan.make(
        grid=grid_of(problem, config),
        order=config.order,
        rank=rank,
        world_size=problem.world_size,
        dest=dest,
        bytes_read=rows * (problem.dim * size + index_size + (4 if problem.weighted else 0)),
        bytes_sent=(high - low) * problem.dim * size,
        flops=rows * problem.dim * (2 if problem.weighted else 1),
        slice_of=slice_base[dest] + block // config.slice_blocks,
    )


@dataclass(frozen=True)
class Tables:
    """This rank's operands.

    Attributes:
        weight: [sum of rows, dim], its tables one after the other.
        table_offsets: int64 [tables], first row of each table.
        indices: [number of indices], rows within their table. An index outside its table is a mistake of the caller that
            a GPU does not look for (it reads another table's row or faults); the emulator and Triton's debug mode stop.
        offsets: [tables * batch + 1]: bag b of table t is indices[offsets[t * batch + b] : offsets[t * batch + b + 1]].
        sample_weights: float32, one per index, if the problem is weighted, else None.
    """

    weight: torch.Tensor
    table_offsets: torch.Tensor
    indices: torch.Tensor
    offsets: torch.Tensor
    sample_weights: torch.Tensor | None = None

    def check(self, problem: Problem, rank: int) -> None:
        """Shapes and dtypes; contents live on the device and are not looked at."""
        tables = problem.tables[rank]
        require(self.weight.dim() == 2, "shape of weight", tuple(self.weight.shape), f"[rows, {problem.dim}]")
        check_tensor("weight", self.weight, (self.weight.shape[0], problem.dim), problem.dtype)
        check_tensor("table_offsets", self.table_offsets, (tables,), torch.int64)
        check_tensor("indices", self.indices, (self.indices.numel(),), problem.index_dtype)
        check_tensor("offsets", self.offsets, (tables * problem.batch + 1,), problem.index_dtype)
        require((self.sample_weights is not None) == problem.weighted, "problem.weighted", problem.weighted,
                "whether sample_weights are passed")  # fmt: skip
        if self.sample_weights is not None:
            check_tensor("sample_weights", self.sample_weights, (self.indices.numel(),), torch.float32)

    def check_contents(self, problem: Problem) -> None:
        """Offsets and indices inside of what they point into. Reads every value, so for tensors of the CPU only."""
        rows, count = self.weight.shape[0], self.indices.numel()
        starts, offsets = self.table_offsets, self.offsets.long()
        heights = torch.cat([starts[1:], starts.new_tensor([rows])]) - starts
        check_each(
            (starts >= 0) & (starts <= rows) & (heights >= 0),
            "table_offsets",
            starts,
            f"0 to {rows}, the rows of weight, ascending",
        )
        ascending = torch.cat([offsets[:1] >= 0, offsets.diff() >= 0])
        check_each(
            ascending & (offsets <= count), "offsets", offsets, f"0 to {count}, the number of indices, ascending"
        )
        of_bag = heights.repeat_interleave(problem.batch)
        height = torch.zeros_like(self.indices, dtype=torch.int64)
        height[int(offsets[0]) : int(offsets[-1])] = of_bag.repeat_interleave(offsets.diff())
        unused = torch.ones_like(height, dtype=torch.bool)
        unused[int(offsets[0]) : int(offsets[-1])] = False
        inside = (self.indices >= 0) & (self.indices < height)
        check_each(inside | unused, "indices", self.indices, "0 or more, less than the rows of their table")
