"""Device code of the microbenchmarks and of the plain push kernels that serve as baselines."""

import triton
import triton.language as tl

from kernels import shmem


@triton.jit
def read_kernel(source, sums, n, BLOCK: tl.constexpr):
    """Stream `n` float32 (a multiple of BLOCK) once: a sum per work-group, so that nothing can be left out."""
    pid = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start.to(tl.int64) + tl.arange(0, BLOCK)
        total += tl.load(source + at, eviction_policy="evict_first")
    tl.store(sums + pid, tl.sum(total))


@triton.jit
def empty_kernel(word):
    """Nothing, for the cost of a launch."""


@triton.jit(do_not_specialize=["rank", "rounds"])
def ping_pong_kernel(flag, word, bases, rank, rounds):
    """`rounds` round trips of one flag between ranks 0 and 1; ranks beyond that do nothing. One work-group.

    `word` is this rank's count of finished launches, so that a captured launch can be replayed: round i of launch c
    raises c * rounds + i + 1.
    """
    base = tl.load(word)
    if rank < 2:
        for i in range(rounds):
            if rank == 0:
                shmem.signal(flag, base + i + 1, bases, rank, 1)
                shmem.wait(flag, base + i + 1)
            else:
                shmem.wait(flag, base + i + 1)
                shmem.signal(flag, base + i + 1, bases, rank, 0)
    tl.debug_barrier()
    tl.store(word, base + rounds)


@triton.jit(do_not_specialize=["rank"])
def peer_store_kernel(target, bases, n, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Store `n` float32 (a multiple of BLOCK) into the next rank's `target`. No flags: for bandwidth only."""
    pid = tl.program_id(0)
    there = shmem.peer_ptr(target, bases, rank, (rank + 1) % WORLD)
    value = tl.full((BLOCK,), 1.0, tl.float32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        tl.store(there + start.to(tl.int64) + tl.arange(0, BLOCK), value)


@triton.jit(do_not_specialize=["rank"])
def push_all_reduce_kernel(partial, out, stage, ready, word, bases, n, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """One-shot all-reduce behind a compute kernel: push the partial vector to all, raise a flag, wait, add in rank order.

    Two stages by the epoch's parity and one flag a peer and work-group, as in the fused one-shot kernel, for the same reasons.
    """
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    epoch = shmem.epoch(word)
    half = (epoch % 2) * WORLD * n
    for start in range(pid * BLOCK, n, grid * BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(partial + at, mask=at < n)
        for hop in tl.static_range(WORLD):
            there = shmem.peer_ptr(stage, bases, rank, (rank + 1 + hop) % WORLD)
            tl.store(there + half + rank * n + at, values, mask=at < n)
    for hop in tl.static_range(WORLD - 1):
        shmem.signal(ready + rank * grid + pid, epoch, bases, rank, (rank + 1 + hop) % WORLD)
    shmem.arrive(word, grid)
    for hop in tl.static_range(WORLD - 1):
        shmem.wait(ready + ((rank + 1 + hop) % WORLD) * grid + pid, epoch)
    tl.debug_barrier()
    for start in range(pid * BLOCK, n, grid * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for peer in tl.static_range(WORLD):
            total += tl.load(stage + half + peer * n + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(out + at, total.to(out.dtype.element_ty), mask=at < n)


@triton.jit(do_not_specialize=["rank"])
def push_all_to_all_kernel(
    sent, out, starts, rows, columns, row_words, pitch, entered, ready, word, bases, rank,
    WORLD: tl.constexpr, BLOCK: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """All-to-all behind a compute kernel: the rows of the part for rank d go into d's `out`.

    `entered` keeps a peer's unread result, `ready` says that all has arrived: the fused kernels' handshake.

    Args:
        sent: the parts one after the other; part d starts at element starts[d] and has rows[d] rows of `row_words` elements.
        columns: where in d's `out` its first row goes; `pitch` elements further the next one, and so on.
        ALIGN: a number that divides all starts and columns: what lets stores be wide.
    """
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    epoch = shmem.epoch(word)
    for hop in range(pid, WORLD - 1, grid):
        shmem.signal(entered + rank, epoch, bases, rank, (rank + 1 + hop) % WORLD)
    for hop in range(WORLD):
        dest = (rank + 1 + hop) % WORLD
        if dest != rank:
            shmem.wait(entered + dest, epoch)
        there = shmem.peer_ptr(out, bases, rank, dest) + tl.multiple_of(tl.load(columns + dest), ALIGN)
        here = sent + tl.multiple_of(tl.load(starts + dest), ALIGN)
        blocks = tl.cdiv(row_words, BLOCK)
        for block in range(pid, tl.load(rows + dest) * blocks, grid):
            row = (block // blocks).to(tl.int64)
            at = (block % blocks) * BLOCK + tl.arange(0, BLOCK)
            tl.store(
                there + row * pitch + at, tl.load(here + row * row_words + at, mask=at < row_words), mask=at < row_words
            )
        if dest != rank:
            shmem.signal(ready + rank * grid + pid, epoch, bases, rank, dest)
    shmem.arrive(word, grid)
    for hop in tl.static_range(WORLD - 1):
        shmem.wait(ready + ((rank + 1 + hop) % WORLD) * grid + pid, epoch)
