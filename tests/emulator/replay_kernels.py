"""Small kernels for the tests of replay mode, right and broken in chosen ways, and programs that run them."""

import torch
import triton
import triton.language as tl
from triton.language import core

from tests.emulator.push_program import nic_fence, put_nbi, signal_op


@triton.jit
def peer_ptr(ptr, bases, me, peer):
    return (ptr.to(tl.int64) + tl.load(bases + peer) - tl.load(bases + me)).to(ptr.dtype)


@triton.jit
def push_kernel(
    inbox, flags, consumed, out, bases, me, WORLD: tl.constexpr, epoch, WGS: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
    SEM: tl.constexpr, SCOPE: tl.constexpr, POLL: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr, SPIN: tl.constexpr,
    FENCE: tl.constexpr, ORDER: tl.constexpr, CONSUMED: tl.constexpr,
):  # fmt: skip
    """Work-group w owns tiles w, w + WGS, ...: pushes each to the next rank, then copies out what the previous one pushed."""
    pid = tl.program_id(0)
    peer = (me + 1) % WORLD
    lanes = tl.arange(0, BLOCK)
    if CONSUMED:  # the receiver has read the tiles of the call before
        while tl.atomic_add(consumed + pid, 0, sem="acquire", scope="sys") < epoch - 1:
            pass
    for t in range(pid, TILES, WGS):
        flag = peer_ptr(flags + t, bases, me, peer)
        if ORDER == "flag first":
            tl.atomic_xchg(flag, epoch, sem=SEM, scope=SCOPE)
        tl.store(peer_ptr(inbox + t * BLOCK, bases, me, peer) + lanes, lanes + (me * 1000 + t * 100000 + epoch * 7))
        if BEFORE:
            tl.debug_barrier()
        if FENCE:
            tl.inline_asm_elementwise(
                "fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
            )
        if ORDER == "data first":
            tl.atomic_xchg(flag, epoch, sem=SEM, scope=SCOPE)
        if ORDER == "data first, flag by a lane":
            tl.atomic_xchg(flag + lanes, epoch, mask=lanes == 0, sem=SEM, scope=SCOPE)
    for t in range(pid, TILES, WGS):
        if SPIN == "add":
            while tl.atomic_add(flags + t, 0, sem=POLL, scope="sys") < epoch:
                pass
        if SPIN == "cas":
            while tl.atomic_cas(flags + t, epoch, epoch, sem=POLL, scope="sys") != epoch:
                pass
        if SPIN == "volatile":
            while tl.load(flags + t, volatile=True) < epoch:
                pass
        if SPIN == "volatile, fence":
            while tl.load(flags + t, volatile=True) < epoch:
                pass
            tl.inline_asm_elementwise(
                "fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
            )
        if SPIN == "plain":
            seen = tl.load(flags + t)
            while seen < epoch:
                seen = tl.load(flags + t)
        if SPIN == "any epoch":
            while tl.atomic_add(flags + t, 0, sem=POLL, scope="sys") < 1:
                pass
        if AFTER:
            tl.debug_barrier()
        tl.store(out + t * BLOCK + lanes, tl.load(inbox + t * BLOCK + lanes))
    if CONSUMED:
        tl.debug_barrier()
        back = peer_ptr(consumed + pid, bases, me, (me + WORLD - 1) % WORLD)
        tl.atomic_xchg(back, epoch, sem="release", scope="sys")


CORRECT = {
    "SEM": "release", "SCOPE": "sys", "POLL": "acquire", "BEFORE": True, "AFTER": True, "SPIN": "add", "FENCE": False,
    "ORDER": "data first", "CONSUMED": True,
}  # fmt: skip


def push(symm, calls: int = 1, wgs: int = 4, tiles: int = 8, block: int = 64, launches_wait: bool = True, **how) -> int:
    """How many elements of the results of all calls are wrong."""
    inbox = symm.empty(tiles * block, torch.int32, "inbox")
    flags = symm.empty(tiles, torch.int32, "flags")
    consumed = symm.empty(wgs, torch.int32, "consumed")
    wrong = 0
    for epoch in range(1, calls + 1):
        out = torch.full((tiles * block,), -1, dtype=torch.int32)
        args = {
            "inbox": inbox, "flags": flags, "consumed": consumed, "out": out, "bases": symm.bases, "me": symm.rank,
            "WORLD": symm.world_size, "epoch": epoch, "WGS": wgs, "TILES": tiles, "BLOCK": block, **(CORRECT | how),
        }  # fmt: skip
        symm.launch(push_kernel, wgs, args, waits=launches_wait)
        sender = (symm.rank - 1) % symm.world_size
        tile = torch.arange(tiles).repeat_interleave(block)
        expected = torch.arange(block).repeat(tiles) + sender * 1000 + tile * 100000 + epoch * 7
        wrong += int((out != expected).sum())
    return wrong


@triton.jit
def gather_kernel(
    x, stage, counter, flag, out, bases, me, WORLD: tl.constexpr, epoch, WGS: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """All work-groups push a slice to every peer; the last one to arrive at a local counter raises one flag a peer."""
    pid = tl.program_id(0)
    lanes = pid * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(x + lanes)
    for hop in tl.static_range(WORLD):
        peer = (me + hop) % WORLD
        tl.store(peer_ptr(stage, bases, me, peer) + me * WGS * BLOCK + lanes, mine)
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem=COUNT, scope="gpu")
    if arrived == epoch * WGS - LAST:
        for hop in tl.static_range(WORLD - 1):
            peer = (me + hop + 1) % WORLD
            tl.atomic_xchg(peer_ptr(flag, bases, me, peer) + me, epoch, sem="release", scope="sys")
    for hop in tl.static_range(WORLD - 1):
        while tl.atomic_add(flag + (me + hop + 1) % WORLD, 0, sem="acquire", scope="sys") < epoch:
            pass
    total = tl.zeros((BLOCK,), tl.float32)
    for r in tl.static_range(WORLD):
        total += tl.load(stage + r * WGS * BLOCK + lanes)
    tl.store(out + lanes, total)


def gather(symm, count: str = "acq_rel", last: int = 1, wgs: int = 2, block: int = 16) -> int:
    """One-shot all-reduce through a counter; how many sums are wrong."""
    stage = symm.empty(symm.world_size * wgs * block, torch.float32, "stage")
    counter, flag = symm.empty(1, torch.int32, "counter"), symm.empty(symm.world_size, torch.int32, "flag")
    inputs = [torch.arange(wgs * block) * (r + 1.0) for r in range(symm.world_size)]
    out = torch.zeros(wgs * block)
    args = {
        "x": inputs[symm.rank], "stage": stage, "counter": counter, "flag": flag, "out": out, "bases": symm.bases, "me": symm.rank,
        "WORLD": symm.world_size, "epoch": 1, "WGS": wgs, "BLOCK": block, "COUNT": count, "LAST": last,
    }  # fmt: skip
    symm.launch(gather_kernel, wgs, args)
    return int((out != sum(inputs)).sum())


@triton.jit
def lanes_kernel(buf, out, BARRIER: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(buf + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + lanes, tl.load(buf + (lanes + SHIFT) % BLOCK))


def own_tile(symm, barrier: bool, shift: int) -> int:
    """A work-group stores a tile and loads it back, with its lanes moved."""
    buf, out = symm.empty(32, torch.int32, "buf"), torch.zeros(32, dtype=torch.int32)
    symm.launch(lanes_kernel, 1, {"buf": buf, "out": out, "BARRIER": barrier, "SHIFT": shift, "BLOCK": 32})
    return int((out != (torch.arange(32) + shift) % 32).sum())


@triton.jit
def address_kernel(buf, table, bases, me, WORLD: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    if MODE == "foreign":  # an address of another process
        tl.store(tl.load(table).to(tl.pointer_type(tl.int32)) + lanes, 1)
    if MODE == "past the end":
        tl.store(peer_ptr(buf, bases, me, (me + 1) % WORLD) + 8 + lanes, 1)
    if MODE == "never written":
        tl.store(buf + lanes, tl.load(peer_ptr(buf, bases, me, (me + 1) % WORLD) + lanes) + 1)
    if MODE == "scattered":  # right: lanes in any order, some masked
        tl.store(buf + (BLOCK - 1 - lanes), lanes, mask=lanes % 3 != 0)


def addresses(symm, mode: str) -> int:
    """Addresses that are wrong in one way or another."""
    buf = symm.empty(16, torch.int32, "buf")
    peers = symm.exchange(buf.data_ptr())
    table = torch.tensor([peers[(symm.rank + 1) % symm.world_size]])
    args = {
        "buf": buf,
        "table": table,
        "bases": symm.bases,
        "me": symm.rank,
        "WORLD": symm.world_size,
        "MODE": mode,
        "BLOCK": 16,
    }
    symm.launch(address_kernel, 1, args)
    return 0


@triton.jit
def wait_kernel(flags, bases, me, WORLD: tl.constexpr, WGS: tl.constexpr, MODE: tl.constexpr):
    pid = tl.program_id(0)
    peer = (me + 1) % WORLD
    if MODE == "nobody raises it":  # noqa: SIM102 (a constant, and a value of the device)
        if pid == 0:
            while tl.atomic_add(flags + 5, 0, sem="acquire", scope="sys") < 1:
                pass
    if MODE == "in a circle":  # everybody waits before it signals
        while tl.atomic_add(flags + pid, 0, sem="acquire", scope="sys") < 1:
            pass
        tl.atomic_xchg(peer_ptr(flags + pid, bases, me, peer), 1, sem="release", scope="sys")
    if MODE == "for a later work-group":
        tl.atomic_xchg(flags + pid, 1, sem="release", scope="gpu")
        while tl.atomic_add(flags + (WGS - 1), 0, sem="acquire", scope="gpu") < 1:
            pass
    if MODE == "equal":  # the counter passes the value that is waited for
        tl.atomic_add(peer_ptr(flags, bases, me, peer), 1, sem="release", scope="sys")
        while tl.atomic_add(flags, 0, sem="acquire", scope="sys") != 1:
            pass
    if MODE == "lock":  # everybody exchanges for ever
        while tl.atomic_xchg(flags, pid + 1, sem="acq_rel", scope="gpu") != 100:
            pass


def waits(symm, mode: str, wgs: int = 4) -> int:
    """Kernels that wait for what does not come."""
    flags = symm.empty(8, torch.int32, "flags")
    args = {"flags": flags, "bases": symm.bases, "me": symm.rank, "WORLD": symm.world_size, "WGS": wgs, "MODE": mode}
    symm.launch(wait_kernel, wgs, args, waits=False)
    return 0


def uneven(symm) -> int:
    """A rank leaves while the other waits in a host barrier."""
    symm.empty(4, torch.int32)
    if symm.rank == 0:
        symm.barrier()
    return 0


@triton.jit
def send_kernel(inbox, flag, bases, me, WORLD: tl.constexpr, WAIT: tl.constexpr, BLOCK: tl.constexpr):
    peer = (me + 1) % WORLD
    lanes = tl.arange(0, BLOCK)
    tl.store(peer_ptr(inbox, bases, me, peer) + lanes, lanes + 1)
    tl.debug_barrier()
    tl.atomic_xchg(peer_ptr(flag, bases, me, peer), 1, sem="release", scope="sys")
    if WAIT:
        while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < 1:
            pass


def host_reads(symm, wait: bool, write: bool = False) -> int:
    """The host reads (or fills) its inbox after a kernel that did or did not wait for what a peer puts there."""
    inbox, flag = symm.empty(64, torch.int32, "inbox"), symm.empty(1, torch.int32, "flag")
    args = {
        "inbox": inbox,
        "flag": flag,
        "bases": symm.bases,
        "me": symm.rank,
        "WORLD": symm.world_size,
        "WAIT": wait,
        "BLOCK": 64,
    }
    symm.launch(send_kernel, 1, args)
    if write:
        inbox.zero_()
        return 0
    return int((inbox.clone() != torch.arange(64) + 1).sum())


@triton.jit
def descriptor_kernel(out, flag, bases, me, WORLD: tl.constexpr, WAIT: tl.constexpr, BLOCK: tl.constexpr):
    """A tile that a peer gets through a tensor descriptor: in flight until a full wait."""
    peer = (me + 1) % WORLD
    rows = tl.make_tensor_descriptor(peer_ptr(out, bases, me, peer), [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    rows.store([0, 0], tl.full((BLOCK, BLOCK), 7, tl.float32))
    if WAIT == "full":
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    if WAIT == "read":
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group.read 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()
    tl.atomic_xchg(peer_ptr(flag, bases, me, peer), 1, sem="release", scope="sys")
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < 1:
        pass
    lanes = tl.arange(0, BLOCK)
    tile = tl.load(out + lanes[:, None] * BLOCK + lanes[None, :])
    tl.store(out + lanes[:, None] * BLOCK + lanes[None, :], tile + 1)


def descriptor(symm, wait: str) -> int:
    """Wrong elements after a tensor-descriptor store and a flag."""
    out, flag = symm.empty((16, 16), torch.float32, "out"), symm.empty(1, torch.int32, "flag")
    args = {
        "out": out,
        "flag": flag,
        "bases": symm.bases,
        "me": symm.rank,
        "WORLD": symm.world_size,
        "WAIT": wait,
        "BLOCK": 16,
    }
    symm.launch(descriptor_kernel, 1, args)
    return int((out != 8).sum())


@core.extern
def put_signal_nbi(target, source, nbytes, flag, value, op, peer, _semantic=None):
    return core.extern_elementwise(
        "", "", [target, source, nbytes, flag, value, op, peer],
        {(tl.int64, tl.int64, tl.int64, tl.int64, tl.int64, tl.int32, tl.int32): ("nvshmemx_putmem_signal_nbi_block", tl.int32)},
        False, _semantic=_semantic,
    )  # fmt: skip


@core.extern
def quiet(_semantic=None):
    return core.extern_elementwise("", "", [], {(): ("nvshmem_quiet", tl.int32)}, False, _semantic=_semantic)


@core.extern
def wait_until(flag, compare, value, _semantic=None):
    return core.extern_elementwise(
        "", "", [flag, compare, value], {(tl.int64, tl.int32, tl.int64): ("nvshmem_signal_wait_until", tl.int64)}, False,
        _semantic=_semantic,
    )  # fmt: skip


@triton.jit
def rdma_kernel(outbox, inbox, flag, out, me, WORLD: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr):
    """Two puts to the next rank and a flag; `HOW` they are ordered."""
    peer = (me + 1) % WORLD
    lanes = tl.arange(0, BLOCK)
    half: tl.constexpr = BLOCK // 2
    tl.store(outbox + lanes, lanes + 100 * me + 1)
    if HOW != "no barrier":
        tl.debug_barrier()
    size = tl.cast(half * 4, tl.int64)
    there = inbox.to(tl.int64)
    here = outbox.to(tl.int64)
    signal = flag.to(tl.int64)
    one = tl.cast(1, tl.int64)
    put_nbi(there, here, size, peer)
    if HOW == "own signal only":  # orders the second put, not the first
        put_signal_nbi(there + half * 4, here + half * 4, size, signal, one, 9, peer)
    elif HOW == "fence, own signal":
        nic_fence()
        put_signal_nbi(there + half * 4, here + half * 4, size, signal, one, 9, peer)
    else:
        put_nbi(there + half * 4, here + half * 4, size, peer)
        if HOW == "fence" or HOW == "no barrier":
            nic_fence()
        if HOW == "quiet" or HOW == "reuse after quiet":
            quiet()
        signal_op(signal, one, 9, peer)
    if HOW == "reuse before quiet" or HOW == "reuse after quiet":
        tl.debug_barrier()
        tl.store(outbox + lanes, lanes)
    if HOW == "reuse before quiet":
        quiet()
    wait_until(signal, 5, one)  # NVSHMEM_CMP_GE
    tl.debug_barrier()
    tl.store(out + lanes, tl.load(inbox + lanes))


def rdma(symm, how: str) -> int:
    """Wrong elements of what two puts brought."""
    outbox, inbox = symm.empty(32, torch.int32, "outbox"), symm.empty(32, torch.int32, "inbox")
    flag, out = symm.empty(1, torch.int64, "flag"), torch.zeros(32, dtype=torch.int32)
    args = {
        "outbox": outbox,
        "inbox": inbox,
        "flag": flag,
        "out": out,
        "me": symm.rank,
        "WORLD": symm.world_size,
        "HOW": how,
        "BLOCK": 32,
    }
    symm.launch(rdma_kernel, 1, args)
    sender = (symm.rank - 1) % symm.world_size
    return int((out != torch.arange(32) + 100 * sender + 1).sum())


@triton.jit
def narrow_kernel(flags, bases, me, WORLD: tl.constexpr):
    """Flags of four bytes in a buffer that was allocated as bytes, next to one of eight."""
    peer = (me + 1) % WORLD
    word = flags.to(tl.pointer_type(tl.int32))
    tl.atomic_xchg(peer_ptr(word + 1, bases, me, peer), 5, sem="release", scope="sys")
    while tl.atomic_add(word + 1, 0, sem="acquire", scope="sys") < 5:
        pass
    wide = (word + 2).to(tl.pointer_type(tl.int64))
    tl.atomic_add(wide, 1, sem="relaxed", scope="gpu")


def narrow(symm, dtype: str) -> int:
    """The same flags in buffers of different element types: an access may be narrower or wider than an element."""
    dt = getattr(torch, dtype)
    flags = symm.empty(16 // dt.itemsize, dt, "pad")
    symm.launch(narrow_kernel, 1, {"flags": flags, "bases": symm.bases, "me": symm.rank, "WORLD": symm.world_size})
    return int(flags.view(torch.int32)[1] != 5) + int(flags.view(torch.int64)[1] != 1)


def seeded(symm) -> torch.Tensor:
    """A program without a kernel."""
    return torch.arange(4.0)
