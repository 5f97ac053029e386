"""The litmus tests as Triton kernels: many instances a launch, each in memory of its own, started together and then delayed at random.

A work-group plays one role of one group of work-groups; groups run side by side, for load. Nothing waits without a bound.
"""

import triton
import triton.language as tl

from kernels.shmem import peer_ptr, signal


@triton.jit
def fence_sc(SCOPE: tl.constexpr):
    """`fence.sc` by every thread; orders what Triton's atomics of thread 0 are before and after it."""
    if SCOPE == "gpu":
        tl.inline_asm_elementwise(
            "fence.sc.gpu; mov.u32 $0, 0;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1
        )
    else:
        tl.inline_asm_elementwise(
            "fence.sc.sys; mov.u32 $0, 0;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def meet(counter, ROLES: tl.constexpr, TRIES: tl.constexpr):
    """Wait until all roles are here, or for long enough. Relaxed: orders nothing."""
    tl.atomic_add(counter, 1, sem="relaxed", scope="sys")
    tries = 0
    while (tries < TRIES) & (tl.atomic_add(counter, 0, sem="relaxed", scope="sys") < ROLES):
        tries += 1


@triton.jit
def message_passing(role, x, y, out, RELEASE: tl.constexpr, TO: tl.constexpr, ACQUIRE: tl.constexpr, BY: tl.constexpr):
    if role == 0:
        tl.store(x, 1)
        tl.atomic_xchg(y, 1, sem=RELEASE, scope=TO)
    else:
        a = tl.atomic_add(y, 0, sem=ACQUIRE, scope=BY)
        b = tl.load(x)
        tl.store(out, a)
        tl.store(out + 1, b)


@triton.jit
def tile_and_signal(role, x, y, y_here, home, bases, me, out, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    """All threads store a tile, one raises the flag: with `kernels.shmem.signal`, or without its barrier."""
    lanes = tl.arange(0, BLOCK)
    if role == 0:
        tl.store(x + lanes, tl.full((BLOCK,), 1, tl.int32))
        if BARRIER:
            signal(y_here, 1, bases, me, home)
        else:
            tl.atomic_xchg(y, 1, sem="release", scope="sys")
    else:
        a = tl.atomic_add(y, 0, sem="acquire", scope="sys")
        tl.debug_barrier()
        b = tl.min(tl.load(x + lanes), axis=0)
        tl.store(out, a)
        tl.store(out + 1, b)


@triton.jit
def store_then_load(mine, theirs, out, SCOPE: tl.constexpr, FENCE: tl.constexpr):
    tl.atomic_xchg(mine, 1, sem="relaxed", scope=SCOPE)
    if FENCE:
        fence_sc(SCOPE)
    tl.store(out, tl.atomic_add(theirs, 0, sem="relaxed", scope=SCOPE))


@triton.jit
def load_twice(first, second, out, ACQUIRE: tl.constexpr, SCOPE: tl.constexpr, FENCE: tl.constexpr):
    a = tl.atomic_add(first, 0, sem=ACQUIRE, scope=SCOPE)
    if FENCE:
        fence_sc(SCOPE)
    b = tl.atomic_add(second, 0, sem=ACQUIRE, scope=SCOPE)
    tl.store(out, a)
    tl.store(out + 1, b)


@triton.jit
def release_chain(role, x, counter, out, MIDDLE: tl.constexpr, BY: tl.constexpr, SCOPE: tl.constexpr):
    if role == 0:
        tl.store(x, 1)
        tl.atomic_add(counter, 1, sem="release", scope=SCOPE)
    elif role == 1:
        tl.atomic_add(counter, 1, sem=MIDDLE, scope=BY)
    else:
        a = tl.atomic_add(counter, 0, sem="acquire", scope=SCOPE)
        b = tl.load(x)
        tl.store(out, a)
        tl.store(out + 1, b)


@triton.jit
def write_read_cause(role, x, y, out, RELEASE: tl.constexpr, SCOPE: tl.constexpr):
    if role == 0:
        tl.atomic_xchg(x, 1, sem="relaxed", scope=SCOPE)
    elif role == 1:
        a = tl.atomic_add(x, 0, sem="relaxed", scope=SCOPE)
        tl.atomic_xchg(y, 1, sem=RELEASE, scope=SCOPE)
        tl.store(out, a)
    else:
        b = tl.atomic_add(y, 0, sem="acquire", scope=SCOPE)
        c = tl.atomic_add(x, 0, sem="relaxed", scope=SCOPE)
        tl.store(out + 1, b)
        tl.store(out + 2, c)


@triton.jit
def run(
    locations, counters, bases, homes, roles, idle, seen, me, seed, SHAPE: tl.constexpr, ROLES: tl.constexpr,
    HERE: tl.constexpr, REGISTERS: tl.constexpr, INSTANCES: tl.constexpr, GROUPS: tl.constexpr, STRIDE: tl.constexpr, TRIES: tl.constexpr,
    DELAY: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Instances 0, 1, ... of one test, one after the other.

    locations: int32 [2, GROUPS * INSTANCES, STRIDE], symmetric, zero: x and y of each instance; homes: int32 [2], whose copy is used.
    counters: int32 [GROUPS * INSTANCES], symmetric, zero: who is here, at rank 0. roles: int32 [HERE], those of this rank.
    idle: int32 [1], read to pass the time. seen: int32 [GROUPS * INSTANCES, REGISTERS], what this rank's roles read.
    P, Q, R, S: parameters of the test, in the order of its function.
    """
    role = tl.load(roles + tl.program_id(0) % HERE)
    group = tl.program_id(0) // HERE
    SLOTS: tl.constexpr = GROUPS * INSTANCES
    home = tl.load(homes + 1)
    all_x = peer_ptr(locations, bases, me, tl.load(homes))
    all_y = peer_ptr(locations, bases, me, home) + SLOTS * STRIDE
    here = peer_ptr(counters, bases, me, 0)
    for instance in range(INSTANCES):
        slot = group * INSTANCES + instance
        x, y, out = all_x + slot * STRIDE, all_y + slot * STRIDE, seen + slot * REGISTERS
        meet(here + slot, ROLES, TRIES)
        if DELAY > 0:
            for _ in range((slot.to(tl.int64) * 104729 + role * 1299709 + seed * 7919) % DELAY):
                tl.load(idle, volatile=True)
        if SHAPE == "message passing":
            message_passing(role, x, y, out, P, Q, R, S)
        elif SHAPE == "tile and signal":
            tile_and_signal(role, x, y, locations + (SLOTS + slot) * STRIDE, home, bases, me, out, P, STRIDE)
        elif SHAPE == "store buffering":
            if role == 0:
                store_then_load(x, y, out, P, Q)
            else:
                store_then_load(y, x, out + 1, P, Q)
        elif SHAPE == "independent reads":
            if role == 0:
                tl.atomic_xchg(x, 1, sem="relaxed", scope=P)
            elif role == 1:
                tl.atomic_xchg(y, 1, sem="relaxed", scope=P)
            elif role == 2:
                load_twice(x, y, out, Q, P, R)
            else:
                load_twice(y, x, out + 2, Q, P, R)
        elif SHAPE == "release chain":
            release_chain(role, x, y, out, P, Q, R)
        elif SHAPE == "cumulativity":
            write_read_cause(role, x, y, out, P, Q)
