"""Device code of GEMM + All-to-All over the `rdma` transport: the paper's scale-out protocol. The tiles are `gemm_device`'s.

A slice is GROUP_M rows of tiles over all columns of one expert's rows for one destination: whole rows of the result, so one put
carries it from this rank's stage straight to its final place.
"""

import triton
import triton.language as tl

from . import rdma, schedule, shmem
from .gemm_device import blocks_for, pick, product_tile, tile_of


@triton.jit(do_not_specialize=["row_capacity", "out_capacity", "rank", "first_dest", "max_slices"])
def fused_kernel(
    x, weight, counts, dst_offsets, scale, out, stage, slice_done, slice_ready, entered, word, N, K, row_capacity,
    out_capacity, rank, first_dest, max_slices,
    WORLD: tl.constexpr, EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, DESCRIPTORS: tl.constexpr, FENCED: tl.constexpr,
):  # fmt: skip
    """The operands are those of `Experts`; out [out_capacity, N] and stage [row_capacity, N], sorted by (destination, expert), are
    symmetric; the rest: `RdmaWorkspace`."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    wide = tl.cdiv(N, BLOCK_N)
    epoch = shmem.epoch(word)
    for hop in range(pid, WORLD - 1, grid):
        peer = (rank + 1 + hop) % WORLD
        rows, _, _, _, _, _, _ = blocks_for(counts, peer, wide, EXPERTS, WORLD, BLOCK_E, BLOCK_W, BLOCK_M)
        rdma.enter(entered, epoch, tl.sum(tl.cdiv(rows, BLOCK_M * GROUP_M), 0), rank, peer, WORLD)

    issued = 0
    for hop in range(WORLD):
        dest = (first_dest + hop) % WORLD
        rows, first_row, row_in_dest, ends, low, high, before = blocks_for(
            counts, dest, wide, EXPERTS, WORLD, BLOCK_E, BLOCK_W, BLOCK_M
        )
        slice_ends = tl.cumsum(tl.cdiv(rows, BLOCK_M * GROUP_M), 0)
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
            mask = (local < rows_left)[:, None] & (columns < N)[None, :]
            place = tl.load(dst_offsets + expert * WORLD + dest)
            parked = before + pick(row_in_dest, expert, BLOCK_E)
            tl.device_assert(place + count <= out_capacity, "row outside the destination's result")
            if dest == rank:
                block = out + place.to(tl.int64) * N
            else:
                block = stage + parked.to(tl.int64) * N
            at = block + (tile_m * BLOCK_M + local).to(tl.int64)[:, None] * N + columns[None, :]
            tl.store(at, product.to(out.dtype.element_ty), mask=mask)
            if dest != rank:
                group = tile_m // GROUP_M
                first = group * GROUP_M * BLOCK_M
                slice_rows = tl.minimum(count - first, GROUP_M * BLOCK_M)
                number = pick(slice_ends, expert, BLOCK_E) - tl.cdiv(count, BLOCK_M * GROUP_M) + group
                # WG_Done: the last work-group of the slice sends it, once the destination's old result is read.
                if rdma.count_part(slice_done + dest * max_slices + number, tl.cdiv(slice_rows, BLOCK_M) * wide):
                    rdma.await_entered(entered, epoch, dest, WORLD)
                    rdma.send(
                        out + (place + first).to(tl.int64) * N, stage + (parked + first).to(tl.int64) * N,
                        slice_rows.to(tl.int64) * N * (out.dtype.element_ty.primitive_bitwidth // 8),
                        slice_ready + rank * max_slices + number, epoch, dest, FENCED,
                    )  # fmt: skip
                    issued += 1
    shmem.arrive(word, grid)

    # Tail: the flags of the slices that each peer says it sends, shared out among this rank's work-groups.
    for hop in tl.static_range(WORLD - 1):
        peer = (rank + 1 + hop) % WORLD
        for number in range(pid, rdma.await_entered(entered, epoch, peer, WORLD), grid):
            rdma.wait(slice_ready + peer * max_slices + number, epoch)
    # The stage may be overwritten by the next call: whoever sent slices of it waits until they are out.
    if issued > 0:
        rdma.quiet()
