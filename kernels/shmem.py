"""Device-side communication for Triton kernels: the extension that the paper's abstract speaks of, in OpenSHMEM's words.

A *symmetric* buffer lies at the same offset of every rank's heap. `bases` is an int64 table of the heaps' base addresses as
this rank maps them, so that a peer's copy of a buffer is `ptr - bases[me] + bases[peer]`.

What orders what (memory models: PTX ISA 8, "Memory Consistency Model"; AMDGPU backend guide, "Memory Model GFX90A / GFX942"):

| call       | orders                                                                    | on NVIDIA                          | on AMD                             |
|------------|---------------------------------------------------------------------------|------------------------------------|------------------------------------|
| peer_ptr   | nothing                                                                   | address arithmetic                 | address arithmetic                 |
| tl.store   | nothing: weak stores, in any order, visible after a `signal`              | st.global                          | global_store                       |
| drain      | this work-group's own stores before anything it does next                 | bar.sync                           | wbl2; waitcnt vmcnt(0); s_barrier  |
| signal     | every store of this work-group before the flag, for whoever acquires it   | bar.sync; atom.release.sys         | drain; release atomic              |
| signal_all | the same for the flags at all peers                                       | bar.sync; a release a thread       | drain; a release a lane            |
| wait       | the flag before every load of this work-group that follows                | ld.acquire.sys spin; bar.sync      | atomic spin; invalidate; s_barrier |
| epoch      | nothing                                                                   | ld.volatile, i.e. relaxed.sys      | volatile load                      |
| arrive     | this work-group's `epoch` before its count                                | bar.sync; atom.relaxed.gpu         | s_barrier; relaxed atomic          |

Flags are int64 and hold a monotone *epoch*: a wait is `>=`, a flag is never reset, so a late reader cannot miss one. The epoch
lives on the device (`epoch`, `arrive`), so a captured graph may be replayed for ever.

`put_signal` and its kin, the RDMA transport, are in `kernels/rdma.py`.
"""

import triton
import triton.language as tl
from triton.language import target_info


@triton.jit
def peer_ptr(ptr, bases, me, peer):
    """Where rank `peer` keeps what rank `me` keeps at `ptr` (a scalar pointer to a symmetric buffer). Orders nothing.

    The result is declared 16-byte aligned (heaps and symmetric buffers are), else peer stores would not be vectorised:
    translate the start of a buffer, then add offsets.
    """
    delta = tl.load(bases + peer) - tl.load(bases + me)
    moved = (ptr.to(tl.int64) + delta).to(ptr.dtype)
    return tl.multiple_of(moved, 16)


@triton.jit
def drain():
    """Block barrier behind which every thread's earlier stores of this work-group have left for system scope.

    Orders all stores of the work-group before whatever any of its threads does next. NVIDIA: bar.sync is enough, since a
    later release by one thread is cumulative over what the barrier ordered. AMD: an s_barrier does not wait for other
    waves' stores, and the release's own s_waitcnt covers the releasing wave only; and LLVM before its pull request 178316
    (Triton 3.7's is older) may send the flag without waiting for the release's L2 write-back. So each wave writes back and
    waits for itself: the `fence release system` of the AMDGPU backend guide, before the barrier.
    """
    if target_info.is_hip():
        if target_info.is_hip_cdna3() or target_info.is_hip_cdna4():
            tl.inline_asm_elementwise(
                "buffer_wbl2 sc0 sc1\n s_waitcnt vmcnt(0)\n v_mov_b32 $0, 0",
                "=v,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
        else:
            tl.inline_asm_elementwise(
                "buffer_wbl2\n s_waitcnt vmcnt(0)\n v_mov_b32 $0, 0",
                "=v,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def signal(flag, epoch, bases, me, peer):
    """Raise `flag` (a scalar pointer to a symmetric int64) at rank `peer` to `epoch`.

    Release at system scope: all stores of this work-group, to any rank, happen before it for the thread that acquires the
    flag. The barrier in front is what makes the other threads' stores part of that release.
    """
    there = peer_ptr(flag, bases, me, peer)  # before the barrier, so that the table's latency hides behind it
    drain()
    tl.atomic_xchg(there, epoch, sem="release", scope="sys")


@triton.jit
def signal_all(flag, epoch, bases, me, WORLD: tl.constexpr):
    """`signal` to every peer at once: one barrier, and the releases side by side, one thread each.

    One after the other, each release would wait until the flag before it had crossed the link. The same order as `signal`:
    the barrier makes every thread's stores part of every releasing thread's past.
    """
    peers = tl.arange(0, WORLD)
    there = (flag.to(tl.int64) + tl.load(bases + peers) - tl.load(bases + me)).to(flag.dtype)
    drain()
    tl.atomic_xchg(there, tl.zeros((WORLD,), tl.int64) + epoch, mask=peers != me, sem="release", scope="sys")


@triton.jit
def wait(flag, epoch):
    """Spin until my own `flag` is at least `epoch`.

    Acquire at system scope, then a block barrier: what the signalling work-group stored before its `signal` is visible to
    every thread of this work-group after it. The caller must already have stored everything that its peers wait for.
    """
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < epoch:
        pass
    tl.debug_barrier()


_EPOCH_SHIFT: tl.constexpr = tl.constexpr(32)


@triton.jit
def epoch(word):
    """This call's epoch. `word` is a device-resident int64: finished calls in the high half, arrivals in the low half.

    A relaxed read (volatile is ld.relaxed.sys in PTX), so that it does not race with another work-group's `arrive`. It
    orders nothing: the high half cannot change before this work-group has arrived.
    """
    return (tl.load(word, volatile=True) >> _EPOCH_SHIFT) + 1


@triton.jit
def arrive(word, grid):
    """Count this work-group as one that has read the epoch; the last of `grid` advances it for the next call.

    The barrier orders every thread's read in `epoch` before the count; the last arrival comes after all of these in the
    word's coherence order, so no late thread can read the next epoch. One word carries count and epoch, so relaxed is
    enough within the launch, and the end of the kernel publishes it to the next. Call it exactly once a work-group, where
    its latency hides (between signalling and waiting).
    """
    tl.debug_barrier()
    arrived = tl.atomic_add(word, 1, sem="relaxed", scope="gpu") & 0xFFFFFFFF
    if arrived == grid - 1:
        tl.atomic_add(word, (tl.cast(1, tl.int64) << _EPOCH_SHIFT) - grid, sem="relaxed", scope="gpu")
