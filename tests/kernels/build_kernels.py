"""Small kernels for the build's tests, right and wrong ones; a catalog for `python -m kernels.build --catalog build_kernels`."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from kernels import shmem


@triton.jit
def _push(
    data, inbox, flag, bases, me, peer, epoch, N: tl.constexpr, BARRIER: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr,
    POLL: tl.constexpr, POLL_SCOPE: tl.constexpr,
):  # fmt: skip
    """Store a tile at a peer, raise its flag, wait for mine, read my inbox."""
    at = tl.arange(0, N)
    tl.store(shmem.peer_ptr(inbox, bases, me, peer) + at, tl.load(data + at) + 1)
    if BARRIER == "drain":
        shmem.drain()
    elif BARRIER == "plain":
        tl.debug_barrier()
    tl.atomic_xchg(shmem.peer_ptr(flag, bases, me, peer), epoch, sem=SEM, scope=SCOPE)
    if POLL == "plain":
        while tl.load(flag) < epoch:
            pass
    elif POLL != "none":
        while tl.atomic_add(flag, 0, sem=POLL, scope=POLL_SCOPE) < epoch:
            pass
    tl.debug_barrier()
    tl.store(data + at, tl.load(inbox + at))


@triton.jit
def _push_branch(data, inbox, flag, bases, me, peer, epoch, N: tl.constexpr):
    """The barrier lies on one path only: not when epoch is even."""
    at = tl.arange(0, N)
    tl.store(shmem.peer_ptr(inbox, bases, me, peer) + at, tl.load(data + at) + 1)
    if epoch % 2 == 1:
        shmem.drain()
    tl.atomic_xchg(shmem.peer_ptr(flag, bases, me, peer), epoch, sem="release", scope="sys")
    shmem.wait(flag, epoch)
    tl.store(data + at, tl.load(inbox + at))


@triton.jit
def _push_bulk(data, inbox, flag, bases, me, peer, epoch, N: tl.constexpr, WAIT: tl.constexpr):
    """The tile goes out as a tensor-descriptor (on Hopper: bulk, asynchronous) store."""
    at = tl.arange(0, N)
    tile = tl.make_tensor_descriptor(shmem.peer_ptr(inbox, bases, me, peer), [N, N], [N, 1], [N, N])
    tile.store([0, 0], tl.load(data + at[:, None] * N + at[None, :]) + 1)
    if WAIT:
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0;\n mov.u32 $0, 0;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1
        )
    shmem.signal(flag, epoch, bases, me, peer)
    shmem.wait(flag, epoch)
    tl.store(data + at, tl.load(inbox + at))


@triton.jit
def _scale(data, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(data + at) * 2)


@triton.jit
def _matmul(a, b, c, N: tl.constexpr, K: tl.constexpr):
    """One N x N tile, K deep, both operands in shared memory at once."""
    n, k = tl.arange(0, N), tl.arange(0, K)
    product = tl.dot(tl.load(a + n[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(c + n[:, None] * N + n[None, :], product)


@triton.jit
def _accumulation_registers(data, N: tl.constexpr):
    """Uses a31 and v41, so 32 AGPRs behind 44 (42, rounded up to 4) VGPRs in the unified file."""
    tl.inline_asm_elementwise("v_mov_b32 $0, 0", "=v,~{a31},~{v41}", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(data + tl.arange(0, N), 1.0)


@triton.jit
def _unknown_name(data, N: tl.constexpr):
    tl.store(data + tl.arange(0, N), no_such_name)  # noqa: F821 - the compiler must refuse it


@dataclass(frozen=True)
class Entry:
    kernel: str
    communicates: bool = True
    operator: str = "test"
    dtype: str = "float32"
    world_size: int = 2
    library: str = ""

    @property
    def role(self) -> str:
        return "fused" if self.communicates else "compute"


_RIGHT = {"N": 1024, "BARRIER": "drain", "SEM": "release", "SCOPE": "sys", "POLL": "acquire", "POLL_SCOPE": "sys"}
PUSHES = {
    "right": {},
    "no_barrier": {"BARRIER": "none"},
    "bare_barrier": {"BARRIER": "plain"},
    "flag_relaxed": {"SEM": "relaxed"},
    "flag_gpu_scope": {"SCOPE": "gpu"},
    "poll_relaxed": {"POLL": "relaxed"},
    "poll_gpu_scope": {"POLL_SCOPE": "gpu"},
    "poll_plain_load": {"POLL": "plain"},
    "no_wait": {"POLL": "none"},
}
_OTHERS = (
    "branch",
    "bulk_read_wait",
    "bulk_full_wait",
    "scale",
    "matmul",
    "agprs",
    "too_big",
    "aborts",
    "refused",
    "two_launches",
)
ENTRIES = tuple(Entry(name) for name in PUSHES) + tuple(
    Entry(name, communicates=name in _OTHERS[:3]) for name in _OTHERS
)


def launch(entry: Entry, symm: Any) -> None:
    def empty(dtype: torch.dtype = torch.float32, size: int = 1 << 14) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=symm.device)

    push = {
        "data": empty(), "inbox": symm.empty(1 << 14, torch.float32), "flag": symm.empty(1, torch.int64), "bases": symm.bases,
        "me": 0, "peer": 1, "epoch": 3,
    }  # fmt: skip
    if entry.kernel in PUSHES:
        symm.launch(_push, 1, {**push, **_RIGHT, **PUSHES[entry.kernel]})
    elif entry.kernel == "branch":
        symm.launch(_push_branch, 1, {**push, "N": 1024})
    elif entry.kernel.startswith("bulk"):
        symm.launch(_push_bulk, 1, {**push, "N": 64, "WAIT": entry.kernel == "bulk_full_wait"})
    elif entry.kernel in ("matmul", "too_big"):
        operands = {"a": empty(torch.float16), "b": empty(torch.float16), "c": empty(torch.float32)}
        symm.launch(
            _matmul, 1, {**operands, **({"N": 128, "K": 128} if entry.kernel == "matmul" else {"N": 128, "K": 512})}
        )
    elif entry.kernel == "agprs":
        symm.launch(_accumulation_registers, 1, {"data": empty(), "N": 64})
    elif entry.kernel == "aborts":
        os.abort()  # what an LLVM error does to the compiling process
    elif entry.kernel == "refused":
        symm.launch(_unknown_name, 1, {"data": empty(), "N": 64})
    else:
        for _ in range(2 if entry.kernel == "two_launches" else 1):
            symm.launch(_scale, 1, {"data": empty(), "out": empty(), "N": 1024}, waits=False)
