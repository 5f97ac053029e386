"""One-shot all-reduce that reads its peers' buffers: the signal is relaxed and no block barrier stands before it.

Wrong: nothing orders the stores of a work-group before the signal by which its peers start to read them. With `sem="release"`
it is still wrong, since only the thread that raises the flag releases its own stores.
"""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import check_sum, table


@triton.jit
def one_shot_all_reduce(
    x, out, buffer_table, pad_table, rank, N, WORLD: tl.constexpr, BLOCK: tl.constexpr, SEM: tl.constexpr
):
    wg = tl.program_id(0)
    lanes = wg * BLOCK + tl.arange(0, BLOCK)
    ok = lanes < N
    mine = tl.load(buffer_table + rank).to(tl.pointer_type(tl.float32))
    tl.store(mine + lanes, tl.load(x + lanes, mask=ok, other=0.0), mask=ok)
    for peer in tl.static_range(WORLD):
        pad = tl.load(pad_table + peer).to(tl.pointer_type(tl.int32)) + wg * WORLD + rank
        tl.atomic_xchg(pad, 1, sem=SEM, scope="sys")
    my_pad = tl.load(pad_table + rank).to(tl.pointer_type(tl.int32)) + wg * WORLD
    for peer in tl.static_range(WORLD):
        while tl.atomic_cas(my_pad + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(WORLD):
        theirs = tl.load(buffer_table + peer).to(tl.pointer_type(tl.float32))
        total += tl.load(theirs + lanes, mask=ok, other=0.0)
    tl.store(out + lanes, total, mask=ok)


def program(symm, sem: str = "relaxed") -> None:
    """One all-reduce of random data."""
    n, block = 24, 16
    wgs = -(-n // block)
    buffer = symm.empty(n, torch.float32, name="buffer")
    pad = symm.empty(wgs * symm.world_size, torch.int32, name="pad")
    inputs = [
        torch.randint(-8, 8, (n,), generator=torch.Generator().manual_seed(r)).float() for r in range(symm.world_size)
    ]
    out = torch.full((n,), float("nan"))
    symm.launch(
        one_shot_all_reduce,
        wgs,
        {
            "x": inputs[symm.rank],
            "out": out,
            "buffer_table": table(symm, buffer),
            "pad_table": table(symm, pad),
            "rank": symm.rank,
            "N": n,
            "WORLD": symm.world_size,
            "BLOCK": block,
            "SEM": sem,
        },
    )
    check_sum(out, inputs)
