"""Kernels that hold what they have read where no local variable shows it; recorded and interpreted runs must agree on them."""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import table


@triton.jit
def read(flag):
    return tl.atomic_add(flag, 0, sem="relaxed", scope="sys")


@triton.jit
def reader(flags, out, rank, HOW: tl.constexpr):
    a = tl.load(flags).to(tl.pointer_type(tl.int32))
    b = a + 1
    if rank == 1:
        tl.atomic_xchg(a, 1, sem="relaxed", scope="sys")
        tl.atomic_xchg(b, 1, sem="relaxed", scope="sys")
    elif HOW == "expression":
        tl.store(
            out, 2 * tl.atomic_add(a, 0, sem="relaxed", scope="sys") + tl.atomic_add(b, 0, sem="relaxed", scope="sys")
        )
    elif HOW == "calls":
        tl.store(out, 2 * read(a) + read(b))
    elif HOW == "bound":
        total = 0
        for _ in range(1 + read(a)):
            total += 1 + read(b)
        tl.store(out, total)
    elif HOW == "assembly":
        both = tl.inline_asm_elementwise(
            """{
            .reg .u32 %a;
            ld.relaxed.sys.global.u32 %a, [$1];
            ld.relaxed.sys.global.u32 $0, [$2];
            add.u32 %a, %a, %a;
            add.u32 $0, $0, %a;
            }""",
            "=r,l,l", [a, b], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.store(out, both)


def program(symm, HOW: str) -> int:
    """What rank 0 read of two flags that rank 1 raises."""
    flags, out = symm.empty(2, torch.int32, name="flags"), torch.zeros(1, dtype=torch.int32)
    symm.launch(reader, 1, {"flags": table(symm, flags), "out": out, "rank": symm.rank, "HOW": HOW})
    return int(out)
