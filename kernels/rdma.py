"""The `rdma` transport: one-sided puts by NVSHMEM's device functions, for ranks that cannot store into each other's memory.

The paper's scale-out protocol: the result is cut into slices of several logical work-groups; each work-group parks its tile in
the slice's place of its own memory and counts itself into the slice's `WG_Done`; the one that counts last sends the whole
slice by ONE non-blocking put, with a flag behind it; receivers wait for the flags at the end of the kernel. The paper sets bits
of a mask; here it is a counter, since a slice may hold more work-groups than a word has bits: the same last-one detection.

| call          | orders                                                                                                    |
|---------------|-----------------------------------------------------------------------------------------------------------|
| `count_part`  | acquire and release at device scope: each counter's read-modify-writes are one chain of releases, so the last work-group has all the others' tiles behind it, and hands them to the NIC |
| `put_signal`  | its data before its own flag, at the destination; nothing else                                            |
| `put`         | nothing: data of several puts arrive in any order                                                         |
| `fence`       | this work-group's puts and signals before its later ones, to each destination by itself                   |
| `signal`      | everything this work-group did (barrier, fence) before the flag                                           |
| `wait`        | the flag before this work-group's later accesses                                                          |
| `send`        | a slice's data before its flag: as `put_signal`, or (fenced) as `put` and `signal`                        |
| `enter`, `await_entered` | as `signal` and `wait`                                                                         |
| `quiet`       | completion of this work-group's puts: only then may their source be overwritten                            |

On NVIDIA the functions come from NVSHMEM's device bitcode (`libnvshmem_device.bc`), bound as in
torch.distributed._symmetric_memory._nvshmem_triton, with the types of NVSHMEM's own headers. Each is executed by every thread
of the work-group: `_block` functions synchronise the threads and share the copy out; `fence`, `quiet` and `signal_wait_until`
are harmless when repeated; a flag that is SET to the same value by each thread is, too, but costs a message each, so data flags
ride on `put_signal`, which sends one. On AMD there is no device bitcode of rocSHMEM that Triton could link (`kernels/README.md`):
`linked` refuses. The emulator implements the same symbols with an asynchronous NIC.
"""

import functools
from typing import Any

import triton
import triton.language as tl
from triton.language import core

from . import shmem
from .errors import ProblemError, require

SIGNAL_SET: tl.constexpr = tl.constexpr(9)
COMPARE_GE: tl.constexpr = tl.constexpr(5)


@core.extern
def _putmem_nbi(target, source, nbytes, peer, _semantic=None):
    types = (core.dtype("int64"), core.dtype("int64"), core.dtype("int64"), core.dtype("int32"))
    symbols = {types: ("nvshmemx_putmem_nbi_block", core.dtype("int32"))}
    return core.extern_elementwise("", "", [target, source, nbytes, peer], symbols, is_pure=False, _semantic=_semantic)


@core.extern
def _putmem_signal_nbi(target, source, nbytes, flag, value, operation, peer, _semantic=None):
    types = tuple(core.dtype(t) for t in ("int64", "int64", "int64", "int64", "uint64", "int32", "int32"))
    symbols = {types: ("nvshmemx_putmem_signal_nbi_block", core.dtype("int32"))}
    args = [target, source, nbytes, flag, value, operation, peer]
    return core.extern_elementwise("", "", args, symbols, is_pure=False, _semantic=_semantic)


@core.extern
def _signal_op(flag, value, operation, peer, _semantic=None):
    types = (core.dtype("int64"), core.dtype("int64"), core.dtype("int32"), core.dtype("int32"))
    symbols = {types: ("nvshmemx_signal_op", core.dtype("int32"))}
    return core.extern_elementwise("", "", [flag, value, operation, peer], symbols, is_pure=False, _semantic=_semantic)


@core.extern
def _signal_wait_until(flag, compare, value, _semantic=None):
    types = (core.dtype("int64"), core.dtype("int32"), core.dtype("uint64"))
    symbols = {types: ("nvshmem_signal_wait_until", core.dtype("uint64"))}
    return core.extern_elementwise("", "", [flag, compare, value], symbols, is_pure=False, _semantic=_semantic)


@core.extern
def fence(_semantic=None):
    """Order this work-group's puts and signals issued so far before those it issues later, destination by destination."""
    symbols = {(): ("nvshmem_fence", core.dtype("int32"))}
    return core.extern_elementwise("", "", [], symbols, is_pure=False, _semantic=_semantic)


@core.extern
def quiet(_semantic=None):
    """Wait until this work-group's puts are complete: their sources may be overwritten from then on."""
    symbols = {(): ("nvshmem_quiet", core.dtype("int32"))}
    return core.extern_elementwise("", "", [], symbols, is_pure=False, _semantic=_semantic)


@triton.jit
def put(target, source, nbytes, peer):
    """Start copying `nbytes` from `source`, in this rank's memory, to where rank `peer` keeps what this rank keeps at `target`.

    Both are symmetric addresses. The barrier makes all threads' stores into the source part of what is sent.
    """
    tl.debug_barrier()
    _putmem_nbi(target.to(tl.int64), source.to(tl.int64), tl.cast(nbytes, tl.int64), tl.cast(peer, tl.int32))


@triton.jit
def put_signal(target, source, nbytes, flag, epoch, peer):
    """`put`, then raise `flag` at `peer` to `epoch` when the data have arrived there."""
    tl.debug_barrier()
    _putmem_signal_nbi(
        target.to(tl.int64), source.to(tl.int64), tl.cast(nbytes, tl.int64), flag.to(tl.int64), tl.cast(epoch, tl.uint64),
        tl.cast(SIGNAL_SET, tl.int32), tl.cast(peer, tl.int32),
    )  # fmt: skip


@triton.jit
def signal(flag, value, peer):
    """Set `flag` (a scalar pointer to a symmetric int64) at `peer`, after all that this work-group did before."""
    tl.debug_barrier()
    fence()
    _signal_op(flag.to(tl.int64), tl.cast(value, tl.int64), tl.cast(SIGNAL_SET, tl.int32), tl.cast(peer, tl.int32))


@triton.jit
def wait(flag, value):
    """Wait until my own `flag` is at least `value`; returns what it is then (int64)."""
    seen = _signal_wait_until(flag.to(tl.int64), tl.cast(COMPARE_GE, tl.int32), tl.cast(value, tl.uint64))
    tl.debug_barrier()
    return seen.to(tl.int64)


@triton.jit
def send(target, source, nbytes, flag, epoch, peer, FENCED: tl.constexpr):
    """One slice to `peer` and its flag behind it: by `put_signal`, or (FENCED) the paper's put, fence and flag."""
    if FENCED:
        put(target, source, nbytes, peer)
        signal(flag, epoch, peer)
    else:
        put_signal(target, source, nbytes, flag, epoch, peer)


@triton.jit
def count_part(done, parts):
    """Count this work-group's tile of a slice as parked; true for the last of `parts`, which then has all of them behind it.

    The last one also clears the counter for the next call, which the end of the kernel orders before that call.
    """
    shmem.drain()
    before = tl.atomic_add(done, 1, sem="acq_rel", scope="gpu")
    last = before == parts - 1
    if last:
        tl.atomic_xchg(done, 0, sem="relaxed", scope="gpu")
    tl.debug_barrier()
    return last


@triton.jit
def enter(entered, epoch, slices, rank, peer, WORLD: tl.constexpr):
    """Tell `peer` that this rank has entered call `epoch` and will send it `slices` slices.

    The word alternates with the epoch's parity: a rank may be one call ahead of a peer that has not read the number yet,
    but not two, since it leaves a call only after every peer has entered it.
    """
    signal(entered + (epoch % 2) * WORLD + rank, (epoch << 32) | slices, peer)


@triton.jit
def await_entered(entered, epoch, peer, WORLD: tl.constexpr):
    """Wait until `peer` has entered call `epoch`; how many slices it sends to this rank."""
    return (wait(entered + (epoch % 2) * WORLD + peer, epoch << 32) & 0xFFFFFFFF).to(tl.int32)


@functools.cache
def _with_nvshmem(kernel: Any) -> Any:
    from torch.distributed._symmetric_memory import _nvshmem_triton

    try:
        return _nvshmem_triton.requires_nvshmem(kernel)
    except RuntimeError as error:
        raise ProblemError(
            "transport is 'rdma'; allowed: 'peer' or 'staged' where NVSHMEM's device library is not installed"
        ) from error


def linked(kernel: Any, symm: Any) -> Any:
    """`kernel`, to be launched on `symm`: on NVIDIA GPUs linked with NVSHMEM's device library, elsewhere itself.

    Raises `ProblemError` where the heap is not NVSHMEM's, where its library is missing, and on AMD GPUs.
    """
    if symm.device.type != "cuda":
        return kernel
    backend = getattr(symm, "backend", None)
    require(backend == "NVSHMEM", "backend of the symmetric memory", backend, "'NVSHMEM' for transport 'rdma'")
    return _with_nvshmem(kernel)
