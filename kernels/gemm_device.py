"""Device code of GEMM + All-to-All: which tile is which, its product, the fused kernel, the same tiles without communication.

What is fused with what, and why buffers may be reused, is in `kernels/gemm_all_to_all.py`.
"""

import triton
import triton.language as tl

from . import handshake, schedule, shmem


@triton.jit
def blocks_for(
    counts, dest, wide, EXPERTS: tl.constexpr, WORLD: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """What goes to `dest`, from the row counts on the device.

    Logical work-groups are numbered by (destination, expert, tile), `wide` tiles to a row of tiles.

    Returns: per expert, int32 [BLOCK_E]: rows, first row in x, row within everything that goes to `dest`, number of logical
    work-groups up to and including it; then the first logical work-group of `dest`, the first behind it, and how many rows go to
    the destinations before.
    """
    experts = tl.arange(0, BLOCK_E)
    ranks = tl.arange(0, BLOCK_W)
    real = (experts < EXPERTS)[:, None] & (ranks < WORLD)[None, :]
    table = tl.load(counts + experts[:, None] * WORLD + ranks[None, :], mask=real, other=0)
    rows = tl.sum(tl.where((ranks == dest)[None, :], table, 0), 1)
    before = tl.where((ranks < dest)[None, :], table, 0)
    of_expert = tl.sum(table, 1)
    first_row = tl.cumsum(of_expert, 0) - of_expert + tl.sum(before, 1)
    ends = tl.cumsum(tl.cdiv(rows, BLOCK_M) * wide, 0)
    low = tl.sum(tl.sum(tl.cdiv(before, BLOCK_M), 1), 0) * wide
    return (
        rows,
        first_row,
        tl.cumsum(rows, 0) - rows,
        ends,
        low,
        low + tl.sum(tl.cdiv(rows, BLOCK_M), 0) * wide,
        tl.sum(tl.sum(before, 1), 0),
    )


@triton.jit
def pick(values, index, BLOCK: tl.constexpr):
    """values[index] of a small vector."""
    return tl.sum(tl.where(tl.arange(0, BLOCK) == index, values, 0), 0)


@triton.jit
def tile_of(within, rows, ends, wide, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, GROUP_M: tl.constexpr):
    """(expert, its rows, row tile, column tile) of the `within`-th logical work-group of a destination.

    Inside an expert tiles run in groups of GROUP_M rows of tiles, down the columns, so that tiles that run at the same time
    share operands in the L2 cache (the order of Triton's matrix multiplication tutorial).
    """
    expert = tl.sum((ends <= within).to(tl.int32), 0)
    count = pick(rows, expert, BLOCK_E)
    high = tl.cdiv(count, BLOCK_M)
    local = within - (pick(ends, expert, BLOCK_E) - high * wide)
    first = local // (GROUP_M * wide) * GROUP_M
    group = tl.minimum(high - first, GROUP_M)
    inside = local % (GROUP_M * wide)
    return expert, count, first + inside % group, inside // group


@triton.jit
def product_tile(
    x, weight, scale, row, rows_left, expert, column, N, K, row_capacity,
    EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """x[row : row + BLOCK_M] @ weight[expert, column : column + BLOCK_N].T, times each row's scale: float32 [BLOCK_M, BLOCK_N].

    Elements behind the `rows_left` rows or the N columns hold something, not necessarily zero: the caller masks its store.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    rows = tl.arange(0, BLOCK_M)
    if DESCRIPTORS:
        x_rows = tl.make_tensor_descriptor(x, [row_capacity, K], [K, 1], [BLOCK_M, BLOCK_K])
        w_rows = tl.make_tensor_descriptor(weight, [EXPERTS * N, K], [K, 1], [BLOCK_N, BLOCK_K])
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            a = x_rows.load([row, k])
            b = w_rows.load([expert * N + column, k])
            total = tl.dot(a, b.T, total, input_precision="ieee")
    else:
        # Rows and columns out of range are read from the tile's first ones: cheaper than masking each load.
        x_rows = row + tl.where(rows < rows_left, rows, 0)
        columns = column + tl.arange(0, BLOCK_N)
        w_rows = expert.to(tl.int64) * N + tl.where(columns < N, columns, column)
        k_range = tl.arange(0, BLOCK_K)
        a_at = x + x_rows.to(tl.int64)[:, None] * K + k_range[None, :]
        b_at = weight + w_rows[None, :] * K + k_range[:, None]
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            if EVEN_K:
                a = tl.load(a_at + k)
                b = tl.load(b_at + k)
            else:
                a = tl.load(a_at + k, mask=(k + k_range < K)[None, :], other=0.0)
                b = tl.load(b_at + k, mask=(k + k_range < K)[:, None], other=0.0)
            total = tl.dot(a, b, total, input_precision="ieee")
    if SCALED:
        total *= tl.load(scale + row + rows, mask=rows < rows_left, other=0.0)[:, None]
    return total


@triton.jit(do_not_specialize=["row_capacity", "out_capacity", "rank", "first_dest"])
def fused_kernel(
    x, weight, counts, dst_offsets, scale, out, stage, ready, entered, word, bases, N, K, row_capacity, out_capacity,
    rank, first_dest,
    WORLD: tl.constexpr, EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, DESCRIPTORS: tl.constexpr, STAGED: tl.constexpr, MAX_WGS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """The operands are those of `Experts`; out [out_capacity, N], ready and entered (`Workspace`) are symmetric; stage
    [row_capacity, N] and word are this rank's."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    wide = tl.cdiv(N, BLOCK_N)
    epoch = shmem.epoch(word)
    handshake.announce(entered, epoch, bases, rank, pid, grid, WORLD)

    # Tiles for each destination, remote ones first, straight into the rows of the destination's result; one flag per
    # destination and work-group, raised as soon as it has nothing more for it. The host does not know how many there are.
    for turn in range(WORLD):
        dest = schedule.destination(turn, pid, first_dest, INTERLEAVED, WORLD)
        rows, first_row, _, ends, low, high, _ = blocks_for(
            counts, dest, wide, EXPERTS, WORLD, BLOCK_E, BLOCK_W, BLOCK_M
        )
        there = shmem.peer_ptr(out, bases, rank, dest)
        start = schedule.first_in(pid, grid, low)
        for logical in range(start, high, grid):
            expert, count, tile_m, tile_n = tile_of(logical - low, rows, ends, wide, BLOCK_E, BLOCK_M, GROUP_M)
            row = pick(first_row, expert, BLOCK_E) + tile_m * BLOCK_M
            rows_left = count - tile_m * BLOCK_M
            product = product_tile(
                x, weight, scale, row, rows_left, expert, tile_n * BLOCK_N, N, K, row_capacity,
                EXPERTS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, EVEN_K, SCALED, DESCRIPTORS,
            )  # fmt: skip
            value = product.to(out.dtype.element_ty)
            local = tl.arange(0, BLOCK_M)
            columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            mask = (local < rows_left)[:, None] & (columns < N)[None, :]
            if STAGED:
                here = (row + local).to(tl.int64)[:, None] * N + columns[None, :]
                value = handshake.through_stage(value, stage, here, mask)
            if logical == start:
                handshake.await_peer(entered, epoch, rank, dest)
            place = tl.load(dst_offsets + expert * WORLD + dest) + tile_m * BLOCK_M + local
            tl.device_assert((place < out_capacity) | (local >= rows_left), "row outside the destination's result")
            tl.store(there + place.to(tl.int64)[:, None] * N + columns[None, :], value, mask=mask)
        handshake.finish(ready, epoch, bases, rank, pid, dest, MAX_WGS)
    shmem.arrive(word, grid)

    # Tail: every peer has stored its rows into this rank's result.
    handshake.await_all(ready, epoch, rank, pid, WORLD, MAX_WGS)


@triton.jit(do_not_specialize=["row_capacity", "first_dest", "dests"])
def compute_kernel(
    x, weight, counts, scale, out, N, K, row_capacity, first_dest, dests,
    WORLD: tl.constexpr, EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """The tiles for `dests` destinations without communication, into out [rows, N] sorted by (destination, expert)."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    wide = tl.cdiv(N, BLOCK_N)
    for dest in range(first_dest, first_dest + dests):
        rows, first_row, row_in_dest, ends, low, high, before = blocks_for(
            counts, dest, wide, EXPERTS, WORLD, BLOCK_E, BLOCK_W, BLOCK_M
        )
        for logical in range(schedule.first_in(pid, grid, low), high, grid):
            expert, count, tile_m, tile_n = tile_of(logical - low, rows, ends, wide, BLOCK_E, BLOCK_M, GROUP_M)
            rows_left = count - tile_m * BLOCK_M
            product = product_tile(
                x, weight, scale, pick(first_row, expert, BLOCK_E) + tile_m * BLOCK_M, rows_left, expert,
                tile_n * BLOCK_N, N, K, row_capacity,
                EXPERTS, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, EVEN_K, SCALED, DESCRIPTORS,
            )  # fmt: skip
            local = tl.arange(0, BLOCK_M)
            columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            place = before + pick(row_in_dest, expert, BLOCK_E) + tile_m * BLOCK_M + local
            mask = (local < rows_left)[:, None] & (columns < N)[None, :]
            at = out + place.to(tl.int64)[:, None] * N + columns[None, :]
            tl.store(at, product.to(out.dtype.element_ty), mask=mask)
