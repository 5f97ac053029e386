"""A kernel of your own on the device API: a ring all-gather, run by the CPU emulator and by GPUs from this one file.

    python -m kernels.examples.ring_all_gather --ranks 4                  # emulator; on a GPU machine: ranks share one GPU
    torchrun --nproc-per-node 4 -m kernels.examples.ring_all_gather       # one GPU a rank

Every rank starts with one chunk and ends with all of them. In step s a rank hands the chunk that it got in step s - 1 to the
next rank, so each link carries world_size - 1 chunks. How to read it: `kernels/README.md`, "A kernel of your own".
"""

import argparse
import importlib
import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl

from .. import shmem
from ..errors import ProblemError, require, require_world_size

MAX_WGS = 64
BLOCK = 256


@triton.jit(do_not_specialize=["rank"])
def ring_all_gather_kernel(
    chunk, out, arrived, entered, word, bases, n, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr, MAX_WGS: tl.constexpr
):  # fmt: skip
    """chunk [n] of this rank; out [WORLD, n], arrived [WORLD, MAX_WGS] and entered [1] are symmetric; word is this rank's."""
    pid = tl.program_id(0)
    grid = tl.num_programs(0)
    epoch = shmem.epoch(word)
    following = (rank + 1) % WORLD
    before = (rank + WORLD - 1) % WORLD

    # The rank before stores into my `out`, which I may have been reading until now: tell it that I am here.
    if (pid == 0) & (WORLD > 1):
        shmem.signal(entered, epoch, bases, rank, before)

    there = shmem.peer_ptr(out, bases, rank, following)
    for step in range(WORLD):
        source = (rank + WORLD - step) % WORLD  # whose chunk I handle in this step: my own first
        if step > 0:
            # Acquire: what the rank before stored of this chunk, before it raised the flag, is visible from here on.
            shmem.wait(arrived + source * MAX_WGS + pid, epoch)
        if (step == 0) & (WORLD > 1):
            shmem.wait(entered, epoch)  # the next rank is here too: its `out` may be overwritten
        for low in range(pid * BLOCK, n, grid * BLOCK):
            at = low + tl.arange(0, BLOCK)
            if step == 0:
                value = tl.load(chunk + at, mask=at < n)
                tl.store(out + source * n + at, value, mask=at < n)
            else:
                value = tl.load(out + source * n + at, mask=at < n)
            if step < WORLD - 1:
                tl.store(there + source * n + at, value, mask=at < n)
        if step < WORLD - 1:
            # Release: this work-group's part of the chunk is at the next rank, whose work-group of my number hands it on.
            shmem.signal(arrived + source * MAX_WGS + pid, epoch, bases, rank, following)
    shmem.arrive(word, grid)


def ring_all_gather(symm: Any, chunk: torch.Tensor, out: torch.Tensor, grid: int = 4) -> torch.Tensor:
    """All ranks' chunks [n] into out [world_size, n] (symmetric), in rank order; collective, no host synchronisation."""
    require(1 <= grid <= MAX_WGS, "grid", grid, f"1 to {MAX_WGS}")
    if "ring_all_gather" not in symm.state:
        symm.state["ring_all_gather"] = (
            symm.empty((symm.world_size, MAX_WGS), torch.int64, "arrived"),
            symm.empty(1, torch.int64, "entered"),
            symm.empty(1, torch.int64, "epoch"),
        )
    arrived, entered, word = symm.state["ring_all_gather"]
    args = {
        "chunk": chunk, "out": out, "arrived": arrived, "entered": entered, "word": word, "bases": symm.bases,
        "n": chunk.numel(), "rank": symm.rank, "WORLD": symm.world_size, "BLOCK": BLOCK, "MAX_WGS": MAX_WGS,
    }  # fmt: skip
    symm.launch(ring_all_gather_kernel, min(grid, symm.max_resident(4)), args, waits=symm.world_size > 1)
    return out


def program(symm: Any, n: int, calls: int) -> bool:
    """What each rank runs: some calls one after the other into the same buffer; whether all results were right."""
    out = symm.empty((symm.world_size, n), torch.float32, "out")
    results = []
    for call in range(calls):
        chunk = torch.arange(n, dtype=torch.float32, device=symm.device) + 1000 * symm.rank + call
        results.append(ring_all_gather(symm, chunk, out).clone())
    ranks = torch.arange(symm.world_size, device=symm.device)[:, None] * 1000
    expected = [torch.arange(n, device=symm.device) + ranks + call for call in range(calls)]
    return all(torch.equal(r, e.float()) for r, e in zip(results, expected, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.examples.ring_all_gather")
    parser.add_argument("--ranks", type=int, default=4, help="ranks where torchrun did not start this (default 4)")
    parser.add_argument("--elements", type=int, default=3000, help="elements of a rank's chunk (default 3000)")
    parser.add_argument("--calls", type=int, default=3, help="calls one after the other (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="emulator: order of events")
    parser.add_argument("--mode", choices=("processes", "replay"), default="processes", help="emulator: see its README")
    options = parser.parse_args()
    operands = (options.elements, options.calls)
    try:
        require(options.elements >= 1, "--elements", options.elements, "1 or more")
        require(options.calls >= 1, "--calls", options.calls, "1 or more")
        require(options.seed >= 0, "--seed", options.seed, "0 or more")
        if "RANK" in os.environ:
            where, right = "one GPU a rank", _on_many_gpus(operands)
        elif torch.cuda.is_available():
            from ..gpu_memory import run_virtual

            where, right = "ranks sharing one GPU", run_virtual(program, options.ranks, *operands)
        else:
            require_world_size(options.ranks)
            # By name: this package and the emulator do not depend on each other.
            root = __package__.removesuffix("kernels.examples")
            emulator = importlib.import_module(f"{root}emulator")
            where = f"emulator, mode {options.mode}, seed {options.seed}"
            right = emulator.run(
                f"{__package__}.ring_all_gather:program",
                options.ranks,
                args=operands,
                mode=options.mode,
                seed=options.seed,
            )
    except ProblemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    verdict = "all chunks right" if all(right) else f"WRONG on ranks {[r for r, ok in enumerate(right) if not ok]}"
    print(f"ring_all_gather: {len(right)} ranks ({where}), {options.calls} calls: {verdict}")
    return 0 if all(right) else 1


def _on_many_gpus(operands: tuple[int, int]) -> list[bool]:
    """One process a GPU, started by torchrun; every process gets every rank's verdict."""
    import torch.distributed as dist

    from ..gpu_memory import TorchSymmetricMemory

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    try:
        symm = TorchSymmetricMemory(dist.group.WORLD, heap_bytes=1 << 26)
        return symm.exchange(program(symm, *operands))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
