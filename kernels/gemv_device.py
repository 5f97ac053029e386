"""Device code of GEMV + AllReduce: the tile product, the two fused kernels, and the same tiles without communication.

What is fused with what, and why buffers may be reused, is in `kernels/gemv_all_reduce.py`.
"""

import triton
import triton.language as tl

from . import schedule, shmem


@triton.jit
def partial_tile(
    weight, x, tile, M, K, BATCH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, ALIGN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Rows [tile * BLOCK_M, + BLOCK_M) of weight @ x for every input vector: float32 [BLOCK_B, BLOCK_M].

    One vector: multiply and add in the layout the weights are loaded in. Several: a matrix product, since anything
    three-dimensional makes the compiler move each weight tile through shared memory to change its layout.
    """
    # The compiler knows an argument as divisible by 16 or not at all; ALIGN = gcd(K, 16) keeps row loads wide in between.
    K = K // ALIGN * ALIGN
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    row_ok = (rows < M)[:, None]
    row_start = weight + rows.to(tl.int64)[:, None] * K
    if BATCH == 1:
        total = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            columns = k + tl.arange(0, BLOCK_K)
            if EVEN_K:
                w = tl.load(row_start + columns[None, :], mask=row_ok, other=0.0, eviction_policy="evict_first")
                v = tl.load(x + columns)
            else:
                ok = columns < K
                w = tl.load(
                    row_start + columns[None, :], mask=row_ok & ok[None, :], other=0.0, eviction_policy="evict_first"
                )
                v = tl.load(x + columns, mask=ok, other=0.0)
            total += w.to(tl.float32) * v.to(tl.float32)[None, :]
        part = tl.sum(total, 1)[None, :]
    else:
        vectors = tl.arange(0, BLOCK_B)
        sums = tl.zeros((BLOCK_M, BLOCK_B), tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            columns = k + tl.arange(0, BLOCK_K)
            w_ok = row_ok
            v_ok = (vectors < BATCH)[None, :]
            if not EVEN_K:
                w_ok = w_ok & (columns < K)[None, :]
                v_ok = v_ok & (columns < K)[:, None]
            w = tl.load(row_start + columns[None, :], mask=w_ok, other=0.0, eviction_policy="evict_first")
            v = tl.load(x + vectors[None, :] * K + columns[:, None], mask=v_ok, other=0.0)
            sums = tl.dot(w, v, sums, input_precision="ieee")
        part = tl.trans(sums)
    return part


@triton.jit
def with_extras(total, bias, residual, offsets, rows, ok, row_ok, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr):
    """Add bias and residual to a reduced tile (float32 [BLOCK_B, BLOCK_M])."""
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=row_ok, other=0.0).to(tl.float32)[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + offsets, mask=ok, other=0.0).to(tl.float32)
    return total


@triton.jit(do_not_specialize=["rank", "first"])
def two_phase_kernel(
    weight, x, bias, residual, out, stage, ready, done, word, bases, M, K, rank, first, per_owner,
    WORLD: tl.constexpr, BATCH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, ALIGN: tl.constexpr, STAGES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, MAX_WGS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """weight [M, K], x [BATCH, K], bias [M] and residual [BATCH, M] are this rank's; symmetric: out [BATCH, M], stage float32
    [WORLD, BATCH, M] by source, int64 flags ready and done [WORLD, MAX_WGS]; word: this rank's epoch word."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M)
    epoch = shmem.epoch(word)
    vectors = tl.arange(0, BLOCK_B)
    steps = schedule.num_steps(pid, grid, tiles)
    start = schedule.first_step(pid, grid, tiles, first)
    remote, offset = 0, 0
    if INTERLEAVED and WORLD > 2:
        remote, offset = schedule.turned(pid, grid, tiles, start, rank, per_owner, WORLD)

    # Phase 1: partial tiles into their owners' stages, remote owners first; one flag per owner and work-group, raised as
    # soon as the work-group has no more tiles for that owner.
    for step in range(steps):
        tile = schedule.logical_at(pid, grid, tiles, start, schedule.turned_step(step, remote, offset))
        owner = tile // per_owner
        following = (
            schedule.logical_at(pid, grid, tiles, start, schedule.turned_step(step + 1, remote, offset)) // per_owner
        )
        mine = shmem.peer_ptr(stage, bases, rank, owner) + rank * BATCH * M  # its latency hides behind the weights
        part = partial_tile(weight, x, tile, M, K, BATCH, BLOCK_B, BLOCK_M, BLOCK_K, EVEN_K, ALIGN, STAGES)
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        ok = (vectors < BATCH)[:, None] & (rows < M)[None, :]
        tl.store(mine + vectors[:, None] * M + rows[None, :], part, mask=ok)
        if owner != rank and (step == steps - 1 or following != owner):
            shmem.signal(ready + rank * MAX_WGS + pid, epoch, bases, rank, owner)
    # The barrier in `arrive` also orders this work-group's own partials before other threads' loads of them.
    shmem.arrive(word, grid)

    # Phase 2: reduce the tiles of this work-group that this rank owns, in rank order, so that every run gives the same bits.
    low = rank * per_owner
    high = tl.minimum(low + per_owner, tiles)
    if schedule.count_in(pid, grid, low, high) > 0:
        for peer in tl.static_range(WORLD):
            if peer != rank:
                shmem.wait(ready + peer * MAX_WGS + pid, epoch)
        for tile in range(schedule.first_in(pid, grid, low), high, grid):
            rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
            row_ok = rows < M
            ok = (vectors < BATCH)[:, None] & row_ok[None, :]
            offsets = vectors[:, None] * M + rows[None, :]
            total = tl.zeros((BLOCK_B, BLOCK_M), tl.float32)
            for peer in tl.static_range(WORLD):
                total += tl.load(stage + peer * BATCH * M + offsets, mask=ok, other=0.0)
            total = with_extras(total, bias, residual, offsets, rows, ok, row_ok, HAS_BIAS, HAS_RESIDUAL)
            for peer in tl.static_range(WORLD):
                y = shmem.peer_ptr(out, bases, rank, peer)
                tl.store(y + offsets, total.to(out.dtype.element_ty), mask=ok)
        if WORLD > 1:
            shmem.signal_all(done + rank * MAX_WGS + pid, epoch, bases, rank, WORLD)

    # Tail: the owners' results for this work-group's tiles are in `out`, and they have read the stage.
    for peer in tl.static_range(WORLD):
        if peer != rank:
            low = peer * per_owner
            if schedule.count_in(pid, grid, low, tl.minimum(low + per_owner, tiles)) > 0:
                shmem.wait(done + peer * MAX_WGS + pid, epoch)


@triton.jit(do_not_specialize=["rank"])
def one_shot_kernel(
    weight, x, bias, residual, out, stage, ready, word, bases, half_size, M, K, rank,
    WORLD: tl.constexpr, BATCH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, ALIGN: tl.constexpr, STAGES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, MAX_WGS: tl.constexpr,
):  # fmt: skip
    """As `two_phase_kernel`, but for `out`, which only its own rank writes, and the stage: float32 [2, half_size], of each half
    the first WORLD * BATCH * M elements."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M)
    epoch = shmem.epoch(word)
    vectors = tl.arange(0, BLOCK_B)
    # Parity: a peer may still be reading the stage of the call before, whose shapes may have been others.
    half = (epoch % 2) * half_size

    for tile in range(pid, tiles, grid):
        part = partial_tile(weight, x, tile, M, K, BATCH, BLOCK_B, BLOCK_M, BLOCK_K, EVEN_K, ALIGN, STAGES)
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        ok = (vectors < BATCH)[:, None] & (rows < M)[None, :]
        offsets = half + rank * BATCH * M + vectors[:, None] * M + rows[None, :]
        for hop in tl.static_range(WORLD):  # the rank itself last
            there = shmem.peer_ptr(stage, bases, rank, (rank + 1 + hop) % WORLD)
            tl.store(there + offsets, part, mask=ok)
    if WORLD > 1:
        shmem.signal_all(ready + rank * MAX_WGS + pid, epoch, bases, rank, WORLD)
    # The barrier in `arrive` also orders this work-group's own partials before other threads' loads of them.
    shmem.arrive(word, grid)

    for peer in tl.static_range(WORLD):
        if peer != rank:
            shmem.wait(ready + peer * MAX_WGS + pid, epoch)
    for tile in range(pid, tiles, grid):
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        row_ok = rows < M
        ok = (vectors < BATCH)[:, None] & row_ok[None, :]
        offsets = vectors[:, None] * M + rows[None, :]
        total = tl.zeros((BLOCK_B, BLOCK_M), tl.float32)
        for peer in tl.static_range(WORLD):  # rank order: the same bits on every rank
            total += tl.load(stage + half + peer * BATCH * M + offsets, mask=ok, other=0.0)
        total = with_extras(total, bias, residual, offsets, rows, ok, row_ok, HAS_BIAS, HAS_RESIDUAL)
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=ok)


@triton.jit
def compute_kernel(
    weight, x, out, M, K,
    BATCH: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    ALIGN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The same tiles without communication: this rank's partial result, [batch, m]."""
    vectors = tl.arange(0, BLOCK_B)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0)):
        part = partial_tile(weight, x, tile, M, K, BATCH, BLOCK_B, BLOCK_M, BLOCK_K, EVEN_K, ALIGN, STAGES)
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        ok = (vectors < BATCH)[:, None] & (rows < M)[None, :]
        tl.store(out + vectors[:, None] * M + rows[None, :], part.to(out.dtype.element_ty), mask=ok)
