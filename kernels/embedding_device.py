"""Device code of embedding + All-to-All: the pooled tile, the fused kernel, and the same tiles without communication.

What is fused with what, and why buffers may be reused, is in `kernels/embedding_all_to_all.py`.
"""

import triton
import triton.language as tl

from . import handshake, schedule, shmem


@triton.jit
def shard(dest, batch, WORLD: tl.constexpr):
    """(first bag, bags) of rank `dest`: the batch in contiguous parts, the first `batch % WORLD` ranks one bag more."""
    share = batch // WORLD
    extra = batch % WORLD
    return dest * share + tl.minimum(dest, extra), share + (dest < extra).to(tl.int32)


@triton.jit
def logical_range(dest, batch, tables, WORLD: tl.constexpr, BLOCK_B: tl.constexpr):
    """[low, high): the logical work-groups whose results go to `dest`: its blocks of bags, times this rank's tables."""
    share = batch // WORLD
    extra = batch % WORLD
    blocks = tl.cdiv(share, BLOCK_B)
    larger = tl.cdiv(share + 1, BLOCK_B)
    low = dest * blocks + tl.minimum(dest, extra) * (larger - blocks)
    return low * tables, (low + tl.where(dest < extra, larger, blocks)) * tables


@triton.jit
def pooled_tile(
    weight, table_offsets, indices, offsets, sample_weights, table, bags, bags_ok, columns, columns_ok, batch, tables, rows,
    DIM: tl.constexpr, MEAN: tl.constexpr, WEIGHTED: tl.constexpr, UNROLL: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Pooled columns of some bags of one table: float32 [BLOCK_B, BLOCK_D], zero where a bag is empty.

    UNROLL rows of a bag are loaded side by side: a gather needs many loads in flight.
    """
    begin = tl.load(offsets + table * batch + bags, mask=bags_ok, other=0)
    length = (tl.load(offsets + table * batch + bags + 1, mask=bags_ok, other=0) - begin).to(tl.int32)
    table_low = tl.load(table_offsets + table)
    table_high = tl.cast(rows, tl.int64)
    if table < tables - 1:
        table_high = tl.load(table_offsets + table + 1)
    if BLOCK_B == 1 and UNROLL & (UNROLL - 1) == 0:
        # One bag: a row for each of UNROLL accumulators, added at the end. With a single accumulator the compiler keeps one row
        # in flight, since each addition waits for the one before.
        first = tl.sum(begin, 0)
        bag = tl.sum(length, 0)
        lanes = tl.arange(0, UNROLL)
        sums = tl.zeros((UNROLL, BLOCK_D), tl.float32)
        for step in tl.range(0, bag, UNROLL):
            live = step + lanes < bag
            row = tl.load(indices + first + step + lanes, mask=live, other=0).to(tl.int64)
            tl.device_assert((row >= 0) & (row < table_high - table_low) | (~live), "index outside its table")
            values = tl.load(
                weight + (table_low + row)[:, None] * DIM + columns[None, :],
                mask=live[:, None] & columns_ok[None, :],
                other=0.0,
            ).to(tl.float32)
            if WEIGHTED:
                values *= tl.load(sample_weights + first + step + lanes, mask=live, other=0.0)[:, None]
            sums += values
        total = tl.sum(sums, 0)[None, :]
    else:
        total = tl.zeros((BLOCK_B, BLOCK_D), tl.float32)
        for step in tl.range(0, tl.max(length, 0), UNROLL):
            for ahead in tl.static_range(UNROLL):
                live = step + ahead < length
                row = tl.load(indices + begin + step + ahead, mask=live, other=0).to(tl.int64)
                tl.device_assert((row >= 0) & (row < table_high - table_low) | (~live), "index outside its table")
                values = tl.load(
                    weight + (table_low + row)[:, None] * DIM + columns[None, :],
                    mask=live[:, None] & columns_ok[None, :],
                    other=0.0,
                ).to(tl.float32)
                if WEIGHTED:
                    values *= tl.load(sample_weights + begin + step + ahead, mask=live, other=0.0)[:, None]
                total += values
    if MEAN:
        count = tl.maximum(length, 1).to(tl.float32)[:, None]
        total = tl.div_rn(total, tl.broadcast_to(count, (BLOCK_B, BLOCK_D)))
    return total


@triton.jit(do_not_specialize=["batch", "tables", "all_tables", "rows", "rank", "first_dest", "first_table"])
def fused_kernel(
    weight, table_offsets, indices, offsets, sample_weights, out, stage, ready, entered, word, bases,
    batch, tables, all_tables, rows, rank, first_dest, first_table,
    WORLD: tl.constexpr, DIM: tl.constexpr, MEAN: tl.constexpr, WEIGHTED: tl.constexpr, UNROLL: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr, MAX_WGS: tl.constexpr, STAGED: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """The operands are those of `Tables`; out [bags of the largest part, all_tables, DIM], ready and entered (`Workspace`) are
    symmetric; stage [batch, tables, DIM] and word are this rank's."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    epoch = shmem.epoch(word)
    handshake.announce(entered, epoch, bases, rank, pid, grid, WORLD)

    # Pool the bags of each destination and store them where they end: remote destinations first, one flag per destination
    # and work-group, raised as soon as it has nothing more for it.
    for turn in range(WORLD):
        dest = schedule.destination(turn, pid, first_dest, INTERLEAVED, WORLD)
        bag_low, bag_count = shard(dest, batch, WORLD)
        low, high = logical_range(dest, batch, tables, WORLD, BLOCK_B)
        there = shmem.peer_ptr(out, bases, rank, dest)
        start = schedule.first_in(pid, grid, low)
        for logical in range(start, high, grid):
            table = (logical - low) % tables
            local = (logical - low) // tables * BLOCK_B + tl.arange(0, BLOCK_B)
            local_ok = local < bag_count
            for column in range(0, DIM, BLOCK_D):
                columns = column + tl.arange(0, BLOCK_D)
                columns_ok = columns < DIM
                pooled = pooled_tile(
                    weight, table_offsets, indices, offsets, sample_weights, table, bag_low + local, local_ok,
                    columns, columns_ok, batch, tables, rows, DIM, MEAN, WEIGHTED, UNROLL, BLOCK_B, BLOCK_D,
                )  # fmt: skip
                value = pooled.to(out.dtype.element_ty)
                mask = local_ok[:, None] & columns_ok[None, :]
                if STAGED:
                    here = ((bag_low + local).to(tl.int64) * tables + table) * DIM
                    value = handshake.through_stage(value, stage, here[:, None] + columns[None, :], mask)
                if (logical == start) & (column == 0):
                    handshake.await_peer(entered, epoch, rank, dest)
                row = (local.to(tl.int64) * all_tables + first_table + table) * DIM
                tl.store(there + row[:, None] + columns[None, :], value, mask=mask)
        handshake.finish(ready, epoch, bases, rank, pid, dest, MAX_WGS)
    shmem.arrive(word, grid)

    # Tail: the owners of the other tables have written this rank's bags.
    handshake.await_all(ready, epoch, rank, pid, WORLD, MAX_WGS)


@triton.jit(do_not_specialize=["batch", "tables", "rows", "low", "high"])
def compute_kernel(
    weight, table_offsets, indices, offsets, sample_weights, out, batch, tables, rows, low, high,
    WORLD: tl.constexpr, DIM: tl.constexpr, MEAN: tl.constexpr, WEIGHTED: tl.constexpr, UNROLL: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Bags [low, high) of this rank's tables without communication, into out [high - low, tables, DIM]."""
    blocks = tl.cdiv(high - low, BLOCK_B)
    for logical in range(tl.program_id(0), blocks * tables, tl.num_programs(0)):
        table = logical % tables
        local = logical // tables * BLOCK_B + tl.arange(0, BLOCK_B)
        local_ok = local < high - low
        for column in range(0, DIM, BLOCK_D):
            columns = column + tl.arange(0, BLOCK_D)
            columns_ok = columns < DIM
            pooled = pooled_tile(
                weight, table_offsets, indices, offsets, sample_weights, table, low + local, local_ok,
                columns, columns_ok, batch, tables, rows, DIM, MEAN, WEIGHTED, UNROLL, BLOCK_B, BLOCK_D,
            )  # fmt: skip
            row = (local.to(tl.int64) * tables + table) * DIM
            mask = local_ok[:, None] & columns_ok[None, :]
            tl.store(out + row[:, None] + columns[None, :], pooled.to(out.dtype.element_ty), mask=mask)
