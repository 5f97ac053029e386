"""A push whose receiver polls with a plain load.

Wrong: the sender releases, but a plain load acquires nothing (a compiler may even hoist it out of the loop).
"""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import table


@triton.jit
def push(out, inbox_table, flag_table, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    wg = tl.program_id(0)
    lanes = wg * BLOCK + tl.arange(0, BLOCK)
    following = (rank + 1) % WORLD
    there = tl.load(inbox_table + following).to(tl.pointer_type(tl.int32))
    tl.store(there + lanes, lanes + 1000 * rank)
    tl.debug_barrier()
    flag = tl.load(flag_table + following).to(tl.pointer_type(tl.int32)) + wg
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")
    mine = tl.load(flag_table + rank).to(tl.pointer_type(tl.int32)) + wg
    ready = tl.load(mine)
    while ready != 1:
        ready = tl.load(mine)
    inbox = tl.load(inbox_table + rank).to(tl.pointer_type(tl.int32))
    tl.store(out + lanes, tl.load(inbox + lanes))


def program(symm) -> None:
    """One push to the next rank."""
    block, wgs = 16, 2
    inbox = symm.empty(block * wgs, torch.int32, name="inbox")
    flags = symm.empty(wgs, torch.int32, name="flags")
    out = torch.full((block * wgs,), -1, dtype=torch.int32)
    symm.launch(
        push,
        wgs,
        {
            "out": out,
            "inbox_table": table(symm, inbox),
            "flag_table": table(symm, flags),
            "rank": symm.rank,
            "WORLD": symm.world_size,
            "BLOCK": block,
        },
    )
    expected = torch.arange(block * wgs) + 1000 * ((symm.rank - 1) % symm.world_size)
    assert torch.equal(out, expected.int())
