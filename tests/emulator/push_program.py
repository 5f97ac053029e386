"""A push to the next rank, right and wrong in chosen ways, through stores or through the NIC, and programs that misbehave."""

import os
import time

import torch
import triton
import triton.language as tl
from triton.language import core


@triton.jit
def peer_ptr(ptr, bases, me, peer):
    return (ptr.to(tl.int64) + tl.load(bases + peer) - tl.load(bases + me)).to(ptr.dtype)


@core.extern
def put_nbi(target, source, nbytes, peer, _semantic=None):
    return core.extern_elementwise(
        "", "", [target, source, nbytes, peer],
        {(tl.int64, tl.int64, tl.int64, tl.int32): ("nvshmemx_putmem_nbi_block", tl.int32)}, False, _semantic=_semantic,
    )  # fmt: skip


@core.extern
def nic_fence(_semantic=None):
    return core.extern_elementwise("", "", [], {(): ("nvshmem_fence", tl.int32)}, False, _semantic=_semantic)


@core.extern
def signal_op(flag, value, op, peer, _semantic=None):
    return core.extern_elementwise(
        "", "", [flag, value, op, peer],
        {(tl.int64, tl.int64, tl.int32, tl.int32): ("nvshmemx_signal_op", tl.int32)}, False, _semantic=_semantic,
    )  # fmt: skip


@triton.jit
def push(
    inbox,
    outbox,
    flags,
    out,
    bases,
    me,
    world,
    epoch,
    TILES,
    WGS: tl.constexpr,
    BLOCK: tl.constexpr,
    BROKEN: tl.constexpr,
    NIC: tl.constexpr,
):
    """Work-group w owns tiles w, w + WGS, ...: sends each to the next rank, raises a flag, then copies what it was sent."""
    w = tl.program_id(0)
    peer = (me + 1) % world
    lanes = tl.arange(0, BLOCK)
    half = (epoch % 2) * TILES * BLOCK
    for t in range(w, TILES, WGS):
        value = lanes + (me * 1000 + t * 100000 + epoch.to(tl.int32) * 7)
        if BROKEN == "flag first":
            tl.atomic_xchg(peer_ptr(flags + t, bases, me, peer), epoch, sem="release", scope="sys")
        if NIC:
            tl.store(outbox + t * BLOCK + lanes, value)
            there = (inbox + half + t * BLOCK).to(tl.int64)
            put_nbi(there, (outbox + t * BLOCK).to(tl.int64), tl.cast(BLOCK * 4, tl.int64), peer)
            if BROKEN != "no fence":
                nic_fence()
            signal_op((flags + t).to(tl.int64), tl.cast(epoch, tl.int64), 9, peer)
        else:
            tl.store(peer_ptr(inbox + half + t * BLOCK, bases, me, peer) + lanes, value)
            if BROKEN != "no barrier":
                tl.debug_barrier()
            if BROKEN == "relaxed":
                tl.atomic_xchg(peer_ptr(flags + t, bases, me, peer), epoch, sem="relaxed", scope="sys")
            elif BROKEN == "gpu scope":
                tl.atomic_xchg(peer_ptr(flags + t, bases, me, peer), epoch, sem="release", scope="gpu")
            elif BROKEN == "plain flag":
                tl.store(peer_ptr(flags + t, bases, me, peer), epoch)
            elif BROKEN != "no flag" and BROKEN != "flag first":
                tl.atomic_xchg(peer_ptr(flags + t, bases, me, peer), epoch, sem="release", scope="sys")
    for t in range(w, TILES, WGS):
        if BROKEN != "no wait":
            while tl.atomic_add(flags + t, 0, sem="acquire", scope="sys") < epoch:
                pass
        tl.debug_barrier()
        tl.store(out + t * BLOCK + lanes, tl.load(inbox + half + t * BLOCK + lanes))


@triton.jit
def push_descriptor(inbox, flag, out, bases, me, world, WAIT: tl.constexpr, BLOCK: tl.constexpr):
    """The tile travels through a tensor descriptor: no barrier or release covers it until its issuer has waited for it."""
    peer = (me + 1) % world
    there = tl.make_tensor_descriptor(peer_ptr(inbox, bases, me, peer), shape=[BLOCK], strides=[1], block_shape=[BLOCK])
    there.store([0], tl.arange(0, BLOCK) + me)
    if WAIT:
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()
    tl.atomic_xchg(peer_ptr(flag, bases, me, peer), 1, sem="release", scope="sys")
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < 1:
        pass
    tl.debug_barrier()
    tl.store(out + tl.arange(0, BLOCK), tl.load(inbox + tl.arange(0, BLOCK)))


def descriptor(symm, wait):
    inbox, flag = symm.empty(64, torch.int32, name="inbox"), symm.empty(1, torch.int64, name="flag")
    out = torch.full((64,), -1, dtype=torch.int32)
    args = {"inbox": inbox, "flag": flag, "out": out, "bases": symm.bases, "me": symm.rank, "world": symm.world_size}
    symm.launch(push_descriptor, 1, {**args, "WAIT": wait, "BLOCK": 64})
    return int((out != torch.arange(64) + (symm.rank - 1) % symm.world_size).sum())


def symbol(name, *types):
    @core.extern
    def call(args, _semantic=None):
        return core.extern_elementwise("", "", list(args), {types: (name, tl.int32)}, False, _semantic=_semantic)

    return call


put_signal = symbol(
    "nvshmemx_putmem_signal_nbi_block", tl.int64, tl.int64, tl.int64, tl.int64, tl.uint64, tl.int32, tl.int32
)
get = symbol("nvshmemx_getmem_block", tl.int64, tl.int64, tl.int64, tl.int32)
wait_until = symbol("nvshmem_signal_wait_until", tl.int64, tl.int32, tl.uint64)
quiet, barrier_all = symbol("nvshmem_quiet"), symbol("nvshmem_barrier_all")


@triton.jit
def nvshmem(box, flag, out, me, world, SYNC: tl.constexpr, BLOCK: tl.constexpr):
    """A put with signal to the next rank, then a get of what it put there from the rank after it."""
    lanes = tl.arange(0, BLOCK)
    peer = (me + 1) % world
    tl.store(box + lanes, lanes + me * 100)
    p = box.to(tl.int64)
    put_signal((p + 4 * BLOCK, p, tl.cast(4 * BLOCK, tl.int64), flag.to(tl.int64), tl.cast(3, tl.uint64), 10, peer))
    wait_until((flag.to(tl.int64), 5, tl.cast(3, tl.uint64)))  # NVSHMEM_CMP_GE
    tl.debug_barrier()
    tl.store(out + lanes, tl.load(box + BLOCK + lanes))
    if SYNC:
        barrier_all(())
    get((p + 8 * BLOCK, p + 4 * BLOCK, tl.cast(4 * BLOCK, tl.int64), peer))
    tl.store(out + BLOCK + lanes, tl.load(box + 2 * BLOCK + lanes))


def nvshmem_calls(symm, sync):
    block, n = 32, symm.world_size
    box, flag = symm.empty((3, block), torch.int32, name="box"), symm.empty(1, torch.uint64, name="flag")
    out = torch.full((2, block), -1, dtype=torch.int32)
    args = {"box": box, "flag": flag, "out": out, "me": symm.rank, "world": n, "SYNC": sync, "BLOCK": block}
    symm.launch(nvshmem, 1, args)
    want = torch.arange(block) + 100 * torch.tensor([[(symm.rank - 1) % n], [symm.rank]])
    return int((out != want).sum())


@triton.jit
def failing(x):
    if tl.program_id(0) == 1:
        tl.device_assert(tl.load(x) > 0, "must be positive")


@triton.jit
def foreign(address):
    tl.store(address.to(tl.pointer_type(tl.int32)), 1)


def exchange_tiles(symm, calls=3, broken="", nic=False, tiles=6, wgs=3, block=64, skew_s=0.0):
    """Wrong elements in each call; neighbours wait for each other between calls, so that two inbox halves are enough."""
    inbox = symm.empty((2, tiles, block), torch.int32, name="inbox")
    outbox = symm.empty((tiles, block), torch.int32, name="outbox")
    flags = symm.empty(tiles, torch.int64, name="flags")
    wrong = []
    for epoch in range(1, calls + 1):
        if skew_s:
            time.sleep(skew_s * ((symm.rank * 7 + epoch * 3) % 5))
        out = torch.full((tiles, block), -1, dtype=torch.int32)
        symm.launch(
            push, wgs,
            {
                "inbox": inbox, "outbox": outbox, "flags": flags, "out": out, "bases": symm.bases, "me": symm.rank, "world": symm.world_size,
                "epoch": torch.tensor(epoch).item(), "TILES": tiles, "WGS": wgs, "BLOCK": block, "BROKEN": broken, "NIC": nic,
            },
        )  # fmt: skip
        sender = (symm.rank - 1) % symm.world_size
        want = torch.arange(block) + sender * 1000 + torch.arange(tiles)[:, None] * 100000 + epoch * 7
        wrong.append(int((out != want).sum()))
        symm.barrier()
    return sum(wrong)


def bases_and_pid(symm):
    return symm.bases.tolist(), os.getpid(), symm.exchange(symm.rank * 10)


def too_many(symm, waits):
    out = torch.zeros(16, dtype=torch.int32)
    symm.launch(count, 16, {"out": out}, waits=waits)
    return out.tolist()


@triton.jit
def count(out):
    tl.store(out + tl.program_id(0), tl.program_id(0) + tl.num_programs(0))


def assertion(symm):
    symm.launch(failing, 2, {"x": torch.zeros(1)})


def host_error(symm):
    if symm.rank == 1:
        raise KeyError("nothing here")
    symm.barrier()


def foreign_pointer(symm):
    theirs = symm.exchange(symm.bases[symm.rank].item())[(symm.rank + 1) % symm.world_size]
    symm.launch(foreign, 1, {"address": theirs + 4096})


def wild_pointer(symm):
    if symm.rank == 0:
        symm.launch(foreign, 1, {"address": 1 << 40})
    symm.barrier()


def exits(symm):
    if symm.rank == 1:
        os._exit(3)
    symm.barrier()


def sleeps(symm, path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(60)


def big(symm, nbytes):
    symm.empty(nbytes, torch.uint8, name="big")


def lonely_barrier(symm):
    if symm.rank == 0:
        symm.barrier()


def spins_in_host(symm):
    while symm.rank == 0:
        pass


@triton.jit
def order(inbox, flags, out, bases, me, world, HOW: tl.constexpr, BLOCK: tl.constexpr):
    """Ways to put two stores of a tile before a flag that are right, each by another rule of the memory model."""
    peer = (me + 1) % world
    lanes = tl.arange(0, BLOCK)
    w = tl.program_id(0)
    there = peer_ptr(inbox, bases, me, peer) + lanes + w * BLOCK
    flag = peer_ptr(flags, bases, me, peer) + w
    tl.store(there, lanes + me)
    if HOW == "fence, barrier, relaxed flag":
        tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="relaxed", scope="sys")
    elif HOW == "barrier, fence, relaxed flag":
        tl.debug_barrier()
        tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
        tl.atomic_xchg(flag, 1, sem="relaxed", scope="sys")
    elif HOW == "barrier, st.release":
        tl.debug_barrier()
        tl.inline_asm_elementwise(
            "st.release.sys.global.u64 [$1], $2; mov.u32 $0, 0;", "=r,l,l", [flag, tl.cast(1, tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    elif HOW == "counter, last one raises all":
        # cumulativity: the others released at GPU scope, the last acquires that and releases at system scope for all
        tl.debug_barrier()
        if tl.atomic_add(flags + 8, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:
            for i in range(tl.num_programs(0)):
                tl.atomic_xchg(peer_ptr(flags, bases, me, peer) + i, 1, sem="release", scope="sys")
    else:
        tl.atomic_xchg(flag, 1, sem="relaxed", scope="sys")
    while tl.atomic_add(flags + w, 0, sem="acquire", scope="sys") < 1:
        pass
    tl.debug_barrier()
    tl.store(out + w * BLOCK + lanes, tl.load(inbox + w * BLOCK + lanes))


def ordered(symm, how):
    inbox, flags = symm.empty((3, 64), torch.int32, name="inbox"), symm.empty(16, torch.int64, name="flags")
    out = torch.full((3, 64), -1, dtype=torch.int32)
    args = {"inbox": inbox, "flags": flags, "out": out, "bases": symm.bases, "me": symm.rank, "world": symm.world_size}
    symm.launch(order, 3, {**args, "HOW": how, "BLOCK": 64})
    return int((out != torch.arange(64) + (symm.rank - 1) % symm.world_size).sum())
