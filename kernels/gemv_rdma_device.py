"""Device code of two-phase GEMV + AllReduce over the `rdma` transport. The tiles are `gemv_device`'s.

A slice is SLICE_TILES row tiles of one owner, packed tile by tile, so that one put carries it whatever the batch. Partial slices
land at their owner, one place per source; reduced slices land at every rank, which spreads them into its own result.
"""

import triton
import triton.language as tl

from . import rdma, schedule, shmem
from .gemv_device import partial_tile, with_extras


@triton.jit
def owned_by(owner, tiles, per_owner):
    """[low, high): the tiles that a rank owns and reduces."""
    return tl.minimum(owner * per_owner, tiles), tl.minimum((owner + 1) * per_owner, tiles)


@triton.jit(do_not_specialize=["rank", "first", "per_owner", "max_slices"])
def two_phase_kernel(
    weight, x, bias, residual, out, stage, landing, result_stage, result_landing, slice_done, ready, done, word,
    M, K, rank, first, per_owner, max_slices,
    WORLD: tl.constexpr, BATCH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, ALIGN: tl.constexpr, STAGES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    SLICE_TILES: tl.constexpr, FENCED: tl.constexpr,
):  # fmt: skip
    """weight, x, bias, residual and out as in `gemv_device`, all this rank's. Symmetric, in packed tiles of [BATCH, BLOCK_M]: stage
    and landing (float32: partial tiles as sent, and by source as received), result_stage and result_landing (out's dtype: all
    tiles); int64 flags ready and done [WORLD, max_slices]; slice_done and word are this rank's (`RdmaWorkspace`)."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M)
    epoch = shmem.epoch(word)
    vectors = tl.arange(0, BLOCK_B)
    inside = vectors[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]  # of a packed tile
    real = (vectors < BATCH)[:, None] & (tl.arange(0, BLOCK_M) < BLOCK_M)[None, :]  # in the shape of a tile
    tile_size = BATCH * BLOCK_M
    steps = schedule.num_steps(pid, grid, tiles)
    start = schedule.first_step(pid, grid, tiles, first)
    issued = 0

    # Phase 1: partial tiles, remote owners first. The last work-group of a slice sends it; the landing place is free, since this
    # rank left the call before only with every owner's results, which were sent after the partials had been read.
    for step in range(steps):
        tile = schedule.logical_at(pid, grid, tiles, start, step)
        owner = tile // per_owner
        part = partial_tile(weight, x, tile, M, K, BATCH, BLOCK_B, BLOCK_M, BLOCK_K, EVEN_K, ALIGN, STAGES)
        low, high = owned_by(owner, tiles, per_owner)
        place = landing + rank.to(tl.int64) * per_owner * tile_size  # at the owner, or here if that is this rank
        if owner == rank:
            block = place + (tile - low).to(tl.int64) * tile_size
        else:
            block = stage + tile.to(tl.int64) * tile_size
        tl.store(block + inside, part, mask=real)
        number = (tile - low) // SLICE_TILES
        slice_low = number * SLICE_TILES
        count = tl.minimum(high - low - slice_low, SLICE_TILES)
        if rdma.count_part(slice_done + owner * max_slices + number, count):
            flag = ready + rank * max_slices + number
            if owner == rank:  # for work-groups of this rank only: device scope is enough
                tl.atomic_xchg(flag, epoch, sem="release", scope="gpu")
            else:
                rdma.send(
                    place + slice_low.to(tl.int64) * tile_size, stage + (low + slice_low).to(tl.int64) * tile_size,
                    count.to(tl.int64) * tile_size * 4, flag, epoch, owner, FENCED,
                )  # fmt: skip
                issued += 1
    shmem.arrive(word, grid)

    # Phase 2: the slices that this rank owns, shared out among its work-groups, in rank order so that every run gives the same
    # bits. A work-group may wait for another one of its own rank here, which has sent everything before it waits itself.
    low, high = owned_by(rank, tiles, per_owner)
    for number in range(pid, tl.cdiv(high - low, SLICE_TILES), grid):
        for peer in tl.static_range(WORLD):
            if peer != rank:
                rdma.wait(ready + peer * max_slices + number, epoch)
        # This rank's own slice: acquire at device scope, and the barrier hands it to the other threads.
        while tl.atomic_add(ready + rank * max_slices + number, 0, sem="acquire", scope="gpu") < epoch:
            pass
        tl.debug_barrier()
        slice_low = number * SLICE_TILES
        count = tl.minimum(high - low - slice_low, SLICE_TILES)
        for index in range(slice_low, slice_low + count):
            rows = (low + index) * BLOCK_M + tl.arange(0, BLOCK_M)
            ok = (vectors < BATCH)[:, None] & (rows < M)[None, :]
            offsets = vectors[:, None] * M + rows[None, :]
            total = tl.zeros((BLOCK_B, BLOCK_M), tl.float32)
            for peer in tl.static_range(WORLD):
                arrived = landing + (peer * per_owner + index).to(tl.int64) * tile_size
                total += tl.load(arrived + inside, mask=ok, other=0.0)
            total = with_extras(total, bias, residual, offsets, rows, ok, rows < M, HAS_BIAS, HAS_RESIDUAL)
            value = total.to(out.dtype.element_ty)
            tl.store(out + offsets, value, mask=ok)
            tl.store(result_stage + (low + index).to(tl.int64) * tile_size + inside, value, mask=real)
        for hop in tl.static_range(WORLD - 1):
            at = (low + slice_low).to(tl.int64) * tile_size
            rdma.send(
                result_landing + at, result_stage + at,
                count.to(tl.int64) * tile_size * (out.dtype.element_ty.primitive_bitwidth // 8),
                done + rank * max_slices + number, epoch, (rank + 1 + hop) % WORLD, FENCED,
            )  # fmt: skip
            issued += 1

    # Tail: the other owners' slices as they arrive, from where they landed into the result.
    for hop in tl.static_range(WORLD - 1):
        owner = (rank + 1 + hop) % WORLD
        low, high = owned_by(owner, tiles, per_owner)
        for number in range(pid, tl.cdiv(high - low, SLICE_TILES), grid):
            rdma.wait(done + owner * max_slices + number, epoch)
            first_tile = low + number * SLICE_TILES
            for tile in range(first_tile, tl.minimum(first_tile + SLICE_TILES, high)):
                rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
                ok = (vectors < BATCH)[:, None] & (rows < M)[None, :]
                value = tl.load(result_landing + tl.cast(tile, tl.int64) * tile_size + inside, mask=ok)
                tl.store(out + vectors[:, None] * M + rows[None, :], value, mask=ok)
    # The stages may be overwritten by the next call: whoever sent from them waits until that is out.
    if issued > 0:
        rdma.quiet()
