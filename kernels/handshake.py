"""Device half of what both All-to-All operators share: who may store into whose result, and when a result is complete.

Two kinds of int64 flags, both holding the epoch of the latest call:

* `entered[p]` on rank r: rank p has entered the call, so (stream order) everything on p that read the previous result is
  done, and p's result buffer may be overwritten;
* `ready[p, g]` on rank r: work-group g of rank p has stored everything of this call that it has for rank r.

Why this is right, for whatever shapes and in whatever order ranks arrive, is in the docstrings of the operators.
"""

import triton
import triton.language as tl

from . import shmem


@triton.jit
def announce(entered, epoch, bases, rank, pid, grid, WORLD: tl.constexpr):
    """Tell every peer that this rank has entered call `epoch`; every work-group calls it first of all.

    Work-group g tells the g-th peer, so that the announcements leave side by side and none delays a work-group twice. Each is
    a release at system scope: whatever this rank's stream did before the launch happens before it.
    """
    for hop in range(pid, WORLD - 1, grid):
        shmem.signal(entered + rank, epoch, bases, rank, (rank + 1 + hop) % WORLD)


@triton.jit
def await_peer(entered, epoch, rank, dest):
    """Before this work-group's first store of the call to `dest`: wait until `dest` has entered the call (acquire)."""
    if dest != rank:
        shmem.wait(entered + dest, epoch)


@triton.jit
def finish(ready, epoch, bases, rank, pid, dest, MAX_WGS: tl.constexpr):
    """Tell `dest` that this work-group has stored all it has for it, be it nothing (release)."""
    if dest != rank:
        shmem.signal(ready + rank * MAX_WGS + pid, epoch, bases, rank, dest)


@triton.jit
def await_all(ready, epoch, rank, pid, WORLD: tl.constexpr, MAX_WGS: tl.constexpr):
    """Wait for the work-group of this number on every peer (acquire): all that they sent to this rank is visible then."""
    for hop in tl.static_range(WORLD - 1):
        peer = (rank + 1 + hop) % WORLD
        shmem.wait(ready + peer * MAX_WGS + pid, epoch)


@triton.jit
def through_stage(value, stage, offsets, mask):
    """The zero-copy ablation: park a tile in this rank's own memory and read it back before it goes to the peer.

    The barrier orders the stores of all threads before their loads: both are of one work-group, whose threads share an L1 cache
    on NVIDIA and (outside of threadgroup split mode) on AMD, so no wider scope is needed.
    """
    tl.store(stage + offsets, value, mask=mask)
    tl.debug_barrier()
    return tl.load(stage + offsets, mask=mask)
