"""Microbenchmarks: the constants that the limits and the timing model use, measured like every other arm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .arms import Bench

READ_BYTES = 1 << 29
GEMM_SIDES = (4096, 8192)
STORE_BYTES = tuple(1 << p for p in (12, 16, 20, 21, 22, 23, 25, 27, 29))
STORE_WGS = (4, 8, 16, 32, 64, 132)
ALL_REDUCE_BYTES = tuple(1 << p for p in (12, 13, 15, 17, 19, 21, 23, 25))
ALL_TO_ALL_BYTES = tuple(1 << p for p in (16, 21, 23, 25, 28))
PING_PONGS = 500
LAUNCHES = 20

Call = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Probe:
    """One microbenchmark.

    Attributes:
        arm: what is measured. case: arm and size.
        make: as of an arm. bytes_read, bytes_sent, flops: of one call. per: divide a call's time by it (launches, flags).
        dtype: of the data. quick: needed for the limits of every measuring run.
    """

    arm: str
    case: str
    make: Callable[[], Call]
    bytes_read: int = 0
    bytes_sent: int = 0
    flops: int = 0
    per: int = 1
    dtype: str = "float32"
    quick: bool = False


def _read(b: Bench, wgs_per_sm: int, warps: int) -> Call:
    from .device import read_kernel

    source = b.memo.setdefault("read", torch.ones(READ_BYTES // 4, device=b.symm.device))
    grid = torch.cuda.get_device_properties(b.symm.device).multi_processor_count * wgs_per_sm
    sums = torch.empty(grid, device=b.symm.device)
    args = {"source": source, "sums": sums, "n": source.numel(), "BLOCK": 512 * warps}

    def call(slot: int) -> torch.Tensor:
        b.symm.launch(read_kernel, grid, args, num_warps=warps, waits=False)
        return sums

    return call


def _copy(b: Bench) -> Call:
    source = b.memo.setdefault("read", torch.ones(READ_BYTES // 4, device=b.symm.device))
    target = b.memo.setdefault("copy", torch.empty_like(source))
    return lambda slot: target.copy_(source)


def _gemm(b: Bench, side: int, dtype: torch.dtype) -> Call:
    x, w = (torch.randn(side, side, device=b.symm.device).to(dtype) for _ in range(2))
    out = torch.empty(side, side, dtype=dtype, device=b.symm.device)
    return lambda slot: torch.mm(x, w.T, out=out)


def _launches(b: Bench, cooperative: bool) -> Call:
    """`LAUNCHES` empty kernels in a row, of one work-group an SM."""
    from .device import empty_kernel

    word = torch.zeros(1, dtype=torch.int64, device=b.symm.device)
    grid = torch.cuda.get_device_properties(b.symm.device).multi_processor_count

    def call(slot: int) -> torch.Tensor:
        for _ in range(LAUNCHES):
            empty_kernel[(grid,)](word, num_warps=4, launch_cooperative_grid=cooperative)
        return word

    return call


def _ping_pong(b: Bench) -> Call:
    from .device import ping_pong_kernel

    flag, word = b.symmetric("ping", (1,), torch.int64), b.symmetric("pong", (1,), torch.int64)
    args = {"flag": flag, "word": word, "bases": b.symm.bases, "rank": b.symm.rank, "rounds": PING_PONGS}

    def call(slot: int) -> torch.Tensor:
        b.symm.launch(ping_pong_kernel, 1, args, num_warps=1, waits=True)
        return word

    return call


def _peer_store(b: Bench, size: int, wgs: int) -> Call:
    from .device import peer_store_kernel

    target = b.symmetric("stores", (max(STORE_BYTES) // 4,), torch.float32)
    block = min(4096, size // 4)
    args = {
        "target": target,
        "bases": b.symm.bases,
        "n": size // 4,
        "rank": b.symm.rank,
        "WORLD": b.world,
        "BLOCK": block,
    }

    def call(slot: int) -> torch.Tensor:
        b.symm.launch(peer_store_kernel, wgs, args, num_warps=8, waits=False)
        return target

    return call


def _all_reduce(b: Bench, size: int, kind: str) -> Call:
    import torch.distributed as dist

    group = b.group
    if kind == "nccl":
        data = torch.zeros(size // 2, dtype=torch.bfloat16, device=b.symm.device)

        def call(slot: int) -> torch.Tensor:
            dist.all_reduce(data, group=group)
            return data

        return call
    buffer = b.library_symmetric("micro", (size // 2,), torch.bfloat16)
    if kind == "one_shot":
        return lambda slot: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", group.group_name)
    return lambda slot: torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", group.group_name)


def _all_to_all(b: Bench, size: int) -> Call:
    import torch.distributed as dist

    group = b.group
    sent, received = (torch.zeros(size // 2, dtype=torch.bfloat16, device=b.symm.device) for _ in range(2))

    def call(slot: int) -> torch.Tensor:
        dist.all_to_all_single(received, sent, group=group)
        return received

    return call


def probes(b: Bench) -> list[Probe]:
    """Every microbenchmark of this world size."""
    found = [
        Probe("read", f"read {READ_BYTES >> 20} MiB, {w} work-groups an SM of {n} warps", lambda w=w, n=n: _read(b, w, n),
              bytes_read=READ_BYTES, quick=(w, n) != (2, 4))
        for w, n in ((4, 4), (8, 4), (16, 4), (16, 2), (4, 8), (8, 8), (2, 4))
    ]  # fmt: skip
    found.append(Probe("copy", f"copy {READ_BYTES >> 20} MiB", lambda: _copy(b), bytes_read=READ_BYTES))
    for dtype in ("bfloat16", "float16", "float32"):
        for side in GEMM_SIDES if dtype != "float32" else GEMM_SIDES[:1]:
            make = lambda side=side, dtype=dtype: _gemm(b, side, getattr(torch, dtype))
            found.append(Probe("gemm", f"gemm {side}^3 {dtype}", make, flops=2 * side**3, dtype=dtype, quick=True))
    found += [
        Probe("launch", "launch of an empty kernel in a graph", lambda: _launches(b, False), per=LAUNCHES),
        Probe(
            "cooperative_launch",
            "cooperative launch of an empty kernel in a graph",
            lambda: _launches(b, True),
            per=LAUNCHES,
        ),
    ]
    if b.world == 1:
        return found
    found.append(
        Probe("flag", f"one-way flag, {PING_PONGS} round trips", lambda: _ping_pong(b), per=2 * PING_PONGS, quick=True)
    )
    for size in STORE_BYTES:
        for wgs in STORE_WGS:
            quick = size == max(STORE_BYTES) and wgs >= 64
            make = lambda size=size, wgs=wgs: _peer_store(b, size, wgs)
            found.append(
                Probe("peer_store", f"peer store {size} B, {wgs} work-groups", make, bytes_sent=size, quick=quick)
            )
    for size in ALL_REDUCE_BYTES:
        for kind in ("nccl", "one_shot", "two_shot"):
            make = lambda size=size, kind=kind: _all_reduce(b, size, kind)
            found.append(
                Probe(f"all_reduce_{kind}", f"all-reduce {size} B, {kind}", make, bytes_sent=size, dtype="bfloat16")
            )
    for size in ALL_TO_ALL_BYTES:
        sent = size // b.world * (b.world - 1)
        make = lambda size=size: _all_to_all(b, size)
        found.append(Probe("all_to_all_nccl", f"all-to-all {size} B", make, bytes_sent=sent, dtype="bfloat16"))
    return found


def bench(symm: Any) -> Bench:
    """A bench without a case."""
    problem = type("World", (), {"world_size": symm.world_size})()
    return Bench(symm, None, {}, problem, [])
