"""One-shot all-reduce between two barriers of all ranks in inline PTX, as libraries without `tl` atomics of their own write them.

Right as it stands; each argument of `program` weakens it.
"""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import check_sum, table


@triton.jit
def thread_id():
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def send(pads, RELEASE: tl.constexpr):
    """0 -> 1 on every pad, waiting while the last signal has not been taken."""
    if RELEASE:
        tl.inline_asm_elementwise(
            """
            {
                .reg .u32   %old<1>;
                .reg .pred  %p<1>;
                send_signal:
                    atom.global.release.sys.cas.b32 %old0, [$1], 0, 1;
                    setp.eq.u32 %p0, %old0, 0;
                    @!%p0 bra send_signal;
                mov.u32 $0, 0;
            }
            """,
            "=r,l", [pads], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .u32   %old<1>;
                .reg .pred  %p<1>;
                send_signal:
                    atom.global.relaxed.sys.cas.b32 %old0, [$1], 0, 1;
                    setp.eq.u32 %p0, %old0, 0;
                    @!%p0 bra send_signal;
                mov.u32 $0, 0;
            }
            """,
            "=r,l", [pads], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def take(pads):
    """1 -> 0 on every pad of mine."""
    tl.inline_asm_elementwise(
        """
        {
            .reg .u32   %old<1>;
            .reg .pred  %p<1>;
            wait_signal:
                atom.global.acquire.sys.cas.b32 %old0, [$1], 1, 0;
                setp.eq.u32 %p0, %old0, 1;
                @!%p0 bra wait_signal;
            mov.u32 $0, 0;
        }
        """,
        "=r,l", [pads], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def barrier(pad_table, rank, WORLD: tl.constexpr, RELEASE: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr):
    """Each work-group meets the same one of every rank."""
    if BEFORE:
        tl.debug_barrier()
    ranks = tl.arange(0, WORLD)
    theirs = tl.load(pad_table + ranks).to(tl.pointer_type(tl.int32)) + tl.program_id(0) * WORLD + rank
    mine = tl.load(pad_table + rank).to(tl.pointer_type(tl.int32)) + tl.program_id(0) * WORLD + ranks
    if thread_id() < WORLD:
        send(theirs, RELEASE)
        take(mine)
    if AFTER:
        tl.debug_barrier()


@triton.jit
def all_reduce(
    x, out, buffer_table, pad_table, rank, N, WORLD: tl.constexpr, BLOCK: tl.constexpr, RELEASE: tl.constexpr,
    BEFORE: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = lanes < N
    mine = tl.load(buffer_table + rank).to(tl.pointer_type(tl.float32))
    tl.store(mine + lanes, tl.load(x + lanes, mask=ok, other=0.0), mask=ok)
    barrier(pad_table, rank, WORLD, RELEASE, BEFORE, AFTER)
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(WORLD):
        theirs = tl.load(buffer_table + peer).to(tl.pointer_type(tl.float32))
        total += tl.load(theirs + lanes, mask=ok, other=0.0)
    tl.store(out + lanes, total, mask=ok)
    barrier(pad_table, rank, WORLD, RELEASE, BEFORE, AFTER)  # nobody overwrites what a slow rank still reads


def program(symm, weakened: str = "") -> None:
    """Two all-reduces of random data; `weakened`: "release", "before" or "after"."""
    n, block = 24, 16
    wgs = -(-n // block)
    buffer = symm.empty(n, torch.float32, name="buffer")
    pad = symm.empty(wgs * symm.world_size, torch.int32, name="pad")
    for call in range(2):
        seeds = [torch.Generator().manual_seed(10 * call + r) for r in range(symm.world_size)]
        inputs = [torch.randint(-8, 8, (n,), generator=g).float() for g in seeds]
        out = torch.full((n,), float("nan"))
        args = {
            "x": inputs[symm.rank], "out": out, "buffer_table": table(symm, buffer), "pad_table": table(symm, pad), "rank": symm.rank,
            "N": n, "WORLD": symm.world_size, "BLOCK": block, "RELEASE": weakened != "release", "BEFORE": weakened != "before",
            "AFTER": weakened != "after",
        }  # fmt: skip
        symm.launch(all_reduce, wgs, args)
        check_sum(out, inputs)
