"""Ring all-reduce over a table of buffer addresses; signals are 0/1 words that a compare-and-swap sets and takes back.

Right as it stands: the emulator must stay silent.
"""

import torch
import triton
import triton.language as tl

from tests.emulator.foreign.tables import check_sum, table


@triton.jit
def post(pad):
    """0 -> 1 at the receiver; waits while the last signal has not been taken."""
    tl.debug_barrier()
    while tl.atomic_cas(pad, 0, 1, sem="release", scope="sys") != 0:
        pass


@triton.jit
def take(pad):
    """1 -> 0 on my own pad."""
    while tl.atomic_cas(pad, 1, 0, sem="acquire", scope="sys") != 1:
        pass
    tl.debug_barrier()


@triton.jit
def ring_all_reduce(
    x, out, inbox_table, full_table, empty_table, rank, WORLD: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):
    """Work-group w carries its slice of every chunk once around the ring to sum it, and once more to spread the sum."""
    wg = tl.program_id(0)
    lanes = wg * BLOCK + tl.arange(0, BLOCK)
    ok = lanes < CHUNK
    following = (rank + 1) % WORLD
    previous = (rank + WORLD - 1) % WORLD
    my_inbox = tl.load(inbox_table + rank).to(tl.pointer_type(tl.float32))
    next_inbox = tl.load(inbox_table + following).to(tl.pointer_type(tl.float32))
    my_full = tl.load(full_table + rank).to(tl.pointer_type(tl.int32)) + wg
    next_full = tl.load(full_table + following).to(tl.pointer_type(tl.int32)) + wg
    my_empty = tl.load(empty_table + rank).to(tl.pointer_type(tl.int32)) + wg
    previous_empty = tl.load(empty_table + previous).to(tl.pointer_type(tl.int32)) + wg

    carried = tl.load(x + rank * CHUNK + lanes, mask=ok, other=0.0)
    for step in range(2 * WORLD - 2):
        # The inbox has one slot: the receiver says when it is empty again (it is at the start of a launch).
        if step > 0:
            take(my_empty)
        tl.store(next_inbox + lanes, carried, mask=ok)
        post(next_full)
        take(my_full)
        arrived = tl.load(my_inbox + lanes, mask=ok, other=0.0)
        if step < 2 * WORLD - 3:
            post(previous_empty)
        chunk = (rank + 2 * WORLD - 1 - step) % WORLD
        if step < WORLD - 1:
            carried = arrived + tl.load(x + chunk * CHUNK + lanes, mask=ok, other=0.0)
        else:
            carried = arrived
        if step >= WORLD - 2:
            tl.store(out + chunk * CHUNK + lanes, carried, mask=ok)


def program(symm) -> None:
    """One all-reduce of random data."""
    world, chunk, block = symm.world_size, 24, 16
    wgs = -(-chunk // block)
    inbox = symm.empty(chunk, torch.float32, name="inbox")
    full = symm.empty(wgs, torch.int32, name="full")
    empty = symm.empty(wgs, torch.int32, name="empty")
    inputs = [
        torch.randint(-8, 8, (world * chunk,), generator=torch.Generator().manual_seed(r)).float() for r in range(world)
    ]
    out = torch.full((world * chunk,), float("nan"))
    symm.launch(
        ring_all_reduce,
        wgs,
        {
            "x": inputs[symm.rank],
            "out": out,
            "inbox_table": table(symm, inbox),
            "full_table": table(symm, full),
            "empty_table": table(symm, empty),
            "rank": symm.rank,
            "WORLD": world,
            "CHUNK": chunk,
            "BLOCK": block,
        },
    )
    check_sum(out, inputs)
