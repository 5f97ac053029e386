"""Device code of embedding + All-to-All over the `rdma` transport: the paper's scale-out protocol.

The tiles are `embedding_device`'s. A slice is some blocks of bags of one destination, times this rank's tables. In the result
such bags' rows are strided (other owners' tables lie between), which one put cannot write: slices land packed, `[bags, tables
of the source, dim]`, in a buffer of the destination, whose work-groups spread them into the result as they arrive.
"""

import triton
import triton.language as tl

from . import rdma, schedule, shmem
from .embedding_device import logical_range, pooled_tile, shard


@triton.jit(
    do_not_specialize=[
        "batch",
        "tables",
        "all_tables",
        "rows",
        "rank",
        "first_dest",
        "first_table",
        "batch_max",
        "max_slices",
    ]
)
def fused_kernel(
    weight, table_offsets, indices, offsets, sample_weights, out, stage, landing, first_tables, slice_done, slice_ready,
    entered, word, batch, tables, all_tables, rows, rank, first_dest, first_table, batch_max, max_slices,
    WORLD: tl.constexpr, DIM: tl.constexpr, MEAN: tl.constexpr, WEIGHTED: tl.constexpr, UNROLL: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr, SLICE_BLOCKS: tl.constexpr, FENCED: tl.constexpr,
):  # fmt: skip
    """The operands are those of `Tables`; out as in `embedding_device`, this rank's; landing [batch_max * all_tables * DIM]: the
    sources' parts one after the other; stage [batch, tables, DIM]; first_tables int32 [WORLD + 1]; the rest: `RdmaWorkspace`."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    epoch = shmem.epoch(word)
    slice_bags = SLICE_BLOCKS * BLOCK_B
    for hop in range(pid, WORLD - 1, grid):
        peer = (rank + 1 + hop) % WORLD
        _, bag_count = shard(peer, batch, WORLD)
        rdma.enter(entered, epoch, tl.cdiv(bag_count, slice_bags), rank, peer, WORLD)

    issued = 0
    for hop in range(WORLD):
        dest = (first_dest + hop) % WORLD
        bag_low, bag_count = shard(dest, batch, WORLD)
        low, high = logical_range(dest, batch, tables, WORLD, BLOCK_B)
        if dest == rank:  # straight to its place in the result
            here = out + (first_table * DIM).to(tl.int64)
            bag_stride = all_tables * DIM
        else:
            here = stage + bag_low.to(tl.int64) * tables * DIM
            bag_stride = tables * DIM
        for logical in range(schedule.first_in(pid, grid, low), high, grid):
            table = (logical - low) % tables
            block = (logical - low) // tables
            local = block * BLOCK_B + tl.arange(0, BLOCK_B)
            local_ok = local < bag_count
            for column in range(0, DIM, BLOCK_D):
                columns = column + tl.arange(0, BLOCK_D)
                columns_ok = columns < DIM
                pooled = pooled_tile(
                    weight, table_offsets, indices, offsets, sample_weights, table, bag_low + local, local_ok,
                    columns, columns_ok, batch, tables, rows, DIM, MEAN, WEIGHTED, UNROLL, BLOCK_B, BLOCK_D,
                )  # fmt: skip
                at = here + (local.to(tl.int64) * bag_stride + table * DIM)[:, None] + columns[None, :]
                tl.store(at, pooled.to(out.dtype.element_ty), mask=local_ok[:, None] & columns_ok[None, :])
            if dest != rank:
                number = block // SLICE_BLOCKS
                first = number * slice_bags
                bags = tl.minimum(bag_count - first, slice_bags)
                # WG_Done: the last work-group of the slice sends it, once the destination's landing place is read.
                if rdma.count_part(slice_done + dest * max_slices + number, tl.cdiv(bags, BLOCK_B) * tables):
                    rdma.await_entered(entered, epoch, dest, WORLD)
                    place = (first_table * batch_max + first * tables).to(tl.int64) * DIM
                    rdma.send(
                        landing + place, stage + (bag_low + first).to(tl.int64) * tables * DIM,
                        bags.to(tl.int64) * tables * DIM * (out.dtype.element_ty.primitive_bitwidth // 8),
                        slice_ready + rank * max_slices + number, epoch, dest, FENCED,
                    )  # fmt: skip
                    issued += 1
    shmem.arrive(word, grid)

    # Tail: slices as they arrive, shared out among this rank's work-groups, from where they landed to their place.
    _, bag_count = shard(rank, batch, WORLD)
    for hop in tl.static_range(WORLD - 1):
        peer = (rank + 1 + hop) % WORLD
        table_low = tl.load(first_tables + peer)
        their_tables = tl.load(first_tables + peer + 1) - table_low
        for number in range(pid, rdma.await_entered(entered, epoch, peer, WORLD), grid):
            rdma.wait(slice_ready + peer * max_slices + number, epoch)
            first = number * slice_bags
            packed = tl.minimum(bag_count - first, slice_bags) * their_tables
            arrived = landing + (table_low * batch_max + first * their_tables).to(tl.int64) * DIM
            for low in range(0, packed, BLOCK_B):
                vector = low + tl.arange(0, BLOCK_B)
                row = (first + vector // their_tables).to(tl.int64) * all_tables + table_low + vector % their_tables
                for column in range(0, DIM, BLOCK_D):
                    columns = column + tl.arange(0, BLOCK_D)
                    mask = (vector < packed)[:, None] & (columns < DIM)[None, :]
                    value = tl.load(arrived + vector.to(tl.int64)[:, None] * DIM + columns[None, :], mask=mask)
                    tl.store(out + row[:, None] * DIM + columns[None, :], value, mask=mask)
    # The stage may be overwritten by the next call: whoever sent slices of it waits until they are out.
    if issued > 0:
        rdma.quiet()
