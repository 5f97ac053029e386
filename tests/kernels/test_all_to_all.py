"""Both All-to-All operators in the emulator: right over awkward shapes, transports and worlds, one call after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import emulator
from kernels.embedding_problem import Problem as Embedding
from kernels.gemm_problem import Problem as Gemm
from kernels.gemv_all_reduce import Problem as Gemv

PROGRAM = f"{Path(__file__).parent / 'operator_program.py'}::"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
BAGS = {"block_b": 2, "block_d": 16, "slice_blocks": 1}
TILES = {"block_m": 16, "block_n": 16, "block_k": 16, "group_m": 2}
TRANSPORTS = [
    {"transport": "peer"},
    {"transport": "staged"},
    {"transport": "rdma"},
    {"transport": "rdma", "fenced": True},
]


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, emulator.Ranks]]:
    made: dict[int, emulator.Ranks] = {n: emulator.Ranks(n, timeout_s=60, heap_bytes=1 << 22) for n in (1, 2, 4, 8)}
    yield made
    for pool in made.values():
        pool.close()


def worst(
    pool: emulator.Ranks, calls: list[tuple[Any, dict]], seed: int, skew_s: float = 0.002, how: str = "fused"
) -> float:
    """Largest error in units of its bound, over calls and ranks."""
    return max(max(errors) for errors in pool.run(PROGRAM + "run", calls, seed, skew_s, how, seed=seed))


def embedding(world: int, batch: int, tables: Any, dim: int, dtype: torch.dtype = F32, **more: Any) -> Embedding:
    return Embedding(batch, tables, dim, dtype, world, **more)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_embedding_of_awkward_shapes(pools: dict[int, emulator.Ranks], world: int, transport: dict) -> None:
    """One bag; fewer bags than ranks; batches that do not divide; a dim off the block; uneven tables; call after call."""
    config = BAGS | transport
    mixed = (2, 1, 3, 1)[:world]
    calls = [
        (embedding(world, 1, 1, 1), config),
        (embedding(world, 7, mixed, 17, weighted=True), config),
        (embedding(world, 2, 2, 3, BF16, pooling_mode="mean", index_dtype=torch.int32), config),
        (embedding(world, 13, mixed, 40, F16, pooling_mode="mean", weighted=True), config | {"order": "oblivious"}),
        (embedding(world, 7, mixed, 17, weighted=True), config | {"slice_blocks": 3}),
        (embedding(world, 9, mixed, 20, weighted=True), config | {"block_b": 1, "unroll": 4}),
        (embedding(world, 9, mixed, 20, BF16, pooling_mode="mean"), config | {"block_b": 1, "unroll": 8}),
    ]
    assert worst(pools[world], calls, seed=world) <= 1


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_gemm_of_awkward_shapes(pools: dict[int, emulator.Ranks], world: int, transport: dict) -> None:
    """One row; K = 1; sizes off every tile; empty blocks; a destination that gets nothing; call after call."""
    config = TILES | transport
    calls = [
        (Gemm(1, world, 1, 1, 1, F32, world), config | {"uneven": False}),
        (Gemm(50, 50 * world, 33, 17, 3, F32, world, scaled=True), config),
        (Gemm(21, 21 * world, 20, 1, 2, BF16, world), config),
        (Gemm(40, 45, 16, 32, 2, F16, world, scaled=True), config | {"uneven": False, "descriptors": True}),
        (Gemm(50, 50 * world, 33, 17, 3, F32, world, scaled=True), config | {"order": "oblivious", "group_m": 1}),
    ]
    assert worst(pools[world], calls, seed=world) <= 1


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_gemv_over_rdma(pools: dict[int, emulator.Ranks], world: int, fenced: bool) -> None:
    """One row; batches; slices of one tile and larger than an owner's part; after and before a call over the other transport."""
    rdma = {"algorithm": "two_phase", "transport": "rdma", "block_m": 4, "slice_tiles": 2, "fenced": fenced}
    calls = [
        (Gemv(1, 1, 1, F32, world), rdma),
        (Gemv(50, 9, 1, F32, world), rdma),
        (Gemv(50, 9, 1, F32, world), rdma | {"transport": "peer"}),
        (Gemv(37, 20, 3, BF16, world), rdma | {"slice_tiles": 1}),
        (Gemv(50, 9, 1, F16, world), rdma | {"slice_tiles": 64}),
    ]
    assert worst(pools[world], calls, seed=world) <= 1


@pytest.mark.parametrize("transport", ["peer", "rdma"])
def test_eight_ranks(pools: dict[int, emulator.Ranks], transport: str) -> None:
    calls = [
        (embedding(8, 11, (1, 2, 1, 1, 3, 1, 1, 1), 5), BAGS | {"transport": transport}),
        (Gemm(40, 320, 17, 8, 2, F32, 8), TILES | {"transport": transport}),
    ]
    if transport == "peer":
        calls += [(problem, config | {"order": "interleaved"}) for problem, config in calls]
        calls.append((Gemv(77, 9, 1, F32, 8), {"algorithm": "two_phase", "block_m": 4, "order": "interleaved"}))
    assert worst(pools[8], calls, seed=8) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_operators_share_a_heap_and_a_result_buffer(pools: dict[int, emulator.Ranks], seed: int) -> None:
    """All three, every transport, in turn, into one buffer that the host poisons and reads in between; ranks skewed."""
    calls: list[tuple[Any, dict]] = []
    for transport in ("peer", "rdma", "peer"):
        calls += [
            (embedding(2, 5, (2, 1), 8), BAGS | {"transport": transport}),
            (Gemv(20, 9, 1, F32, 2), {"algorithm": "two_phase", "block_m": 4, "transport": transport}),
            (Gemm(30, 60, 20, 8, 2, F32, 2), TILES | {"transport": transport}),
            (Gemv(20, 9, 1, F32, 2), {"algorithm": "one_shot", "block_m": 4}),
        ]
    assert worst(pools[2], calls, seed=seed, skew_s=0.01) <= 1


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("how", ["bulk", "decomposed"])
def test_baselines_compute_the_same(pools: dict[int, emulator.Ranks], world: int, how: str) -> None:
    mixed = (2, 1, 3, 1)[:world]
    calls = [
        (embedding(world, 7, mixed, 17, weighted=True), BAGS),
        (embedding(world, 1, 1, 3, pooling_mode="mean"), BAGS),
        (Gemm(50, 50 * world, 33, 17, 3, F32, world, scaled=True), TILES),
        (Gemv(50, 9, 2, F32, world), {}),
    ]
    assert worst(pools[world], calls, seed=world, how=how) <= 1


@pytest.mark.parametrize("transport", ["peer", "staged", "rdma"])
@pytest.mark.parametrize("operator", ["embedding", "gemm", "gemv"])
def test_replay_finds_no_race(operator: str, transport: str) -> None:
    """Two calls under late stores, stale loads and a reordering NIC, every access checked with vector clocks."""
    calls = [
        (embedding(2, 3, (2, 1), 4), BAGS | {"transport": transport, "fenced": True}),
        (embedding(2, 2, 1, 4), BAGS | {"transport": transport}),
    ]
    if operator == "gemm":
        problem = Gemm(20, 40, 16, 16, 1, F32, 2)
        calls = [
            (problem, TILES | {"transport": transport, "fenced": True}),
            (problem, TILES | {"transport": transport}),
        ]
    if operator == "gemv":
        config = {"algorithm": "two_phase", "block_m": 4}
        config |= {"transport": "rdma", "slice_tiles": 2} if transport == "rdma" else {}
        calls = [(Gemv(m, 8, 1, F32, 2), config) for m in (30, 22)]
    results = emulator.run(PROGRAM + "run", 2, args=(calls, 3), mode="replay", seed=5, heap_bytes=1 << 19)
    assert max(max(errors) for errors in results) <= 1


@pytest.mark.parametrize("seed", [1, 4])
def test_stages_of_one_shot_stay_where_they_are_when_shapes_change(seed: int) -> None:
    """A fast rank in a small call must not write where a slow one still reads the partial results of the larger call before."""
    calls = [(Gemv(m, 8, 1, F32, 2), {"algorithm": "one_shot", "block_m": 4, "grid": 2}) for m in (16, 40, 16)]
    results = emulator.run(PROGRAM + "run", 2, args=(calls, 3), mode="replay", seed=seed, heap_bytes=1 << 19)
    assert max(max(errors) for errors in results) <= 1


@pytest.mark.parametrize("operator", ["embedding", "gemm", "gemv"])
def test_replay_finds_no_schedule_that_breaks_interleaved_destinations(operator: str) -> None:
    interleaved: dict[str, Any] = {"order": "interleaved", "grid": 3}
    if operator == "embedding":
        calls = [(embedding(4, batch, 1, 4), BAGS | interleaved) for batch in (9, 5)]
    elif operator == "gemm":
        calls = [(Gemm(rows, rows * 4, 20, 4, 1, F32, 4), TILES | interleaved) for rows in (40, 70)]
    else:
        calls = [(Gemv(m, 4, 1, F32, 4), {"algorithm": "two_phase", "block_m": 2} | interleaved) for m in (26, 15)]
    results = emulator.run(PROGRAM + "run", 4, args=(calls, 3), mode="replay", seed=5, heap_bytes=1 << 19)
    assert max(max(errors) for errors in results) <= 1


@pytest.mark.parametrize(
    ("config", "spoil", "message"),
    [
        ({}, {"weight": torch.zeros(3, 4, dtype=F16)}, "dtype of weight is 'torch.float16'; allowed: torch.float32"),
        ({}, {"offsets": torch.zeros(3, dtype=torch.int64)}, "shape of offsets is (3,); allowed: (7,)"),
        ({}, {"indices": torch.zeros(3, dtype=torch.int32)}, "dtype of indices is 'torch.int32'; allowed: torch.int64"),
        (
            {},
            {"sample_weights": torch.zeros(3)},
            "problem.weighted is False; allowed: whether sample_weights are passed",
        ),
        (
            {},
            {"out": torch.zeros(2, 4, 4)},
            "memory of out is 'outside the symmetric heap'; allowed: a tensor from symm.empty",
        ),
        ({}, {"out": torch.zeros(2, 4, 5)}, "shape of out is (2, 4, 5); allowed: (2, 4, 4)"),
    ],
)
def test_embedding_refuses(pools: dict[int, emulator.Ranks], config: dict, spoil: dict, message: str) -> None:
    assert pools[2].run(PROGRAM + "refused", embedding(2, 3, 2, 4), config, spoil) == [message] * 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"counts": torch.zeros(2, 2, dtype=torch.int64)}, "dtype of counts is 'torch.int64'; allowed: torch.int32"),
        ({"x": torch.zeros(16, 8).T}, "shape of x is (8, 16); allowed: (16, 8)"),
        ({"x": torch.zeros(8, 16).T}, "stride of x is (1, 16); allowed: contiguous"),
        ({"x": torch.zeros(16, 8, device="meta")}, "device of x is 'meta'; allowed: cpu"),
        ({"scale": torch.zeros(16)}, "problem.scaled is False; allowed: whether scale is passed"),
    ],
)
def test_gemm_refuses(pools: dict[int, emulator.Ranks], spoil: dict, message: str) -> None:
    assert pools[2].run(PROGRAM + "refused", Gemm(16, 32, 8, 8, 2, F32, 2), {}, spoil) == [message] * 2


@pytest.mark.parametrize(
    ("config", "spoil", "message"),
    [
        ({"algorithm": "two_phase"}, {"out": torch.zeros(2, 20)}, "memory of out is 'outside the symmetric heap'; allowed: a tensor from symm.empty"),
        ({"algorithm": "one_shot"}, {"out": torch.zeros(2, 20)}, ""),
        ({}, {"x": torch.zeros(2, 9, device="meta")}, "device of x is 'meta'; allowed: cpu"),
        ({}, {"x": torch.zeros(3, 9)}, "shape of x is (3, 9); allowed: (2, 9)"),
        ({}, {"weight": torch.zeros(20, 9, dtype=BF16)}, "dtype of weight is 'torch.bfloat16'; allowed: torch.float32"),
        ({"grid": 5000}, {}, "grid is 5000; allowed: 1 to 4096"),
        ({"grid": 0}, {}, "grid is 0; allowed: 1 to 4096"),
        ({"num_warps": 3}, {}, "num_warps is 3; allowed: a power of two, 1 to 32"),
        ({"num_stages": 0}, {}, "num_stages is 0; allowed: 1 or more"),
        ({"block_m": 12}, {}, "block_m is 12; allowed: a power of two"),
        ({"block_k": 8}, {}, "block_k is 8; allowed: a power of two, 16 or more"),
        ({"transport": "staged"}, {}, "transport is 'staged'; allowed: peer, rdma"),
        ({"transport": "rdma", "algorithm": "one_shot"}, {}, "algorithm over rdma is 'one_shot'; allowed: two_phase"),
    ],
)  # fmt: skip
def test_gemv_refuses(pools: dict[int, emulator.Ranks], config: dict, spoil: dict, message: str) -> None:
    assert pools[2].run(PROGRAM + "refused", Gemv(20, 9, 2, F32, 2), config, spoil) == [message] * 2


def test_problems_and_configs_refuse() -> None:
    from kernels.embedding_problem import Config
    from kernels.errors import ProblemError

    for make, message in (
        (lambda: embedding(2, 0, 1, 1), "batch is 0; allowed: 1 or more"),
        (lambda: embedding(2, 1, (1, 2, 3), 1), "tables is (1, 2, 3); allowed: 1 or more on each of 2 ranks"),
        (lambda: embedding(3, 1, 1, 1), "world_size is 3; allowed: 1, 2, 4 or 8"),
        (lambda: embedding(2, 1, 1, 1, pooling_mode="max"), "pooling_mode is 'max'; allowed: sum, mean"),
        (lambda: Gemm(1, 1, 1, 0, 1, F32, 2), "k is 0; allowed: 1 or more"),
        (lambda: Config(transport="tcp"), "transport is 'tcp'; allowed: peer, staged, rdma"),
        (lambda: Config(order="random"), "order over peer is 'random'; allowed: remote_first, interleaved, oblivious"),
        (lambda: Config(order="interleaved", transport="rdma"), "order over rdma is 'interleaved'; allowed: remote_first, oblivious"),
        (lambda: Config(block_b=3), "block_b is 3; allowed: a power of two"),
    ):  # fmt: skip
        with pytest.raises(ProblemError) as error:
            make()
        assert str(error.value) == message


def test_an_index_outside_its_table_is_reported(pools: dict[int, emulator.Ranks]) -> None:
    spoil = {"indices": torch.full((4,), 10), "offsets": torch.tensor([0, 1, 2, 3, 3, 3, 4])}
    with pytest.raises(emulator.EmulatorError, match="index outside its table"):
        pools[2].run(PROGRAM + "refused", embedding(2, 3, 2, 4), {}, spoil)
