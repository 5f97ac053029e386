"""Message passing in inline PTX, whole or weakened, for `test_assembly`."""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import table


@triton.jit
def ptx_push(inboxes, flags, out, rank, AFTER: tl.constexpr, HOW: tl.constexpr):
    lanes, peer = tl.arange(0, 16), 1 - rank
    inbox = tl.load(inboxes + peer).to(tl.pointer_type(tl.int32))
    tl.store(inbox + lanes, lanes + 100 * rank)
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        """{
        .reg .u32 %t;
        .reg .pred %p;
        mov.u32 %t, %tid.x;
        setp.eq.u32 %p, %t, 0;
        @%p red.release.sys.global.add.u32 [$1], 1;
        mov.u32 $0, 0;
        }""",
        "=r,l", [tl.load(flags + peer)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    mine = tl.load(flags + rank)
    if HOW == "everyone":
        tl.inline_asm_elementwise(
            """{
            .reg .u32 %r;
            .reg .pred %q;
            spin: ld.acquire.sys.global.u32 %r, [$1];
            setp.ne.u32 %q, %r, 1;
            @%q bra spin;
            mov.u32 $0, 0;
            }""",
            "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    elif HOW == "thread 0":
        tl.inline_asm_elementwise(
            """{
            .reg .u32 %t, %r;
            .reg .pred %p, %q;
            mov.u32 %t, %tid.x;
            setp.ne.u32 %p, %t, 0;
            @%p bra done;
            spin: ld.acquire.sys.global.u32 %r, [$1];
            setp.ne.u32 %q, %r, 1;
            @%q bra spin;
            done: mov.u32 $0, 0;
            }""",
            "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        seen = 0
        while seen != 1:
            seen = tl.inline_asm_elementwise(
                "atom.add.acquire.sys.global.u32 $0, [$1], 0;", "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1
            )
    if AFTER:
        tl.debug_barrier()
    tl.store(out + lanes, tl.load(tl.load(inboxes + rank).to(tl.pointer_type(tl.int32)) + lanes))


def program(symm, HOW: str, AFTER: bool) -> bool:
    """Whether all values arrived."""
    inbox, flag = symm.empty(16, torch.int32, name="inbox"), symm.empty(1, torch.int32, name="flag")
    out = torch.zeros(16, dtype=torch.int32)
    args = {
        "inboxes": table(symm, inbox),
        "flags": table(symm, flag),
        "out": out,
        "rank": symm.rank,
        "HOW": HOW,
        "AFTER": AFTER,
    }
    symm.launch(ptx_push, 1, args)
    return out.tolist() == [100 * (1 - symm.rank) + i for i in range(16)]
