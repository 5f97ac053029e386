"""The torch operators on GPUs, one process each (NCCL): both faces, opcheck, inductor, CUDA graphs, the example programs.

Skips itself without a GPU. With one GPU the world is one rank: everything but the communication.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROOT = Path(__file__).parents[2]
GPUS = 1 << (min(8, torch.cuda.device_count()).bit_length() - 1) if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(GPUS == 0, reason="no GPU")


def _gemv(rank: int, ranks: int, seed: int) -> tuple:
    """(operator, operands without the group's name, shape of the symmetric result, expected, bound)."""
    from kernels import gemv_all_reduce as gemv

    def make(r: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(10 * seed + r)
        return [torch.randn(shape, generator=generator).bfloat16() for shape in ((2, 256), (300, 256))]

    pairs = [make(r) for r in range(ranks)]
    exact, magnitude = gemv.reference([w for _, w in pairs], [x for x, _ in pairs])
    bound = gemv.error_bound(gemv.Problem(300, 256, 2, torch.bfloat16, ranks), exact, magnitude)
    return "gemv_all_reduce", [*pairs[rank], None, None], (2, 300), exact, bound


def _embedding(rank: int, ranks: int, seed: int) -> tuple:
    from kernels import embedding_all_to_all as embedding

    batch, dim, tables = 9, 64, (2,) * ranks

    def make(r: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(10 * seed + r)
        lengths = torch.randint(0, 6, (2 * batch,), generator=generator)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        indices = torch.randint(0, 50, (100,), generator=generator)  # padded, so that shapes do not change
        weights = torch.rand(100, generator=generator)
        return [torch.randn(100, dim, generator=generator), torch.tensor([0, 50]), indices, offsets, weights]

    everybody = [make(r) for r in range(ranks)]
    problem = embedding.Problem(batch, tables, dim, torch.float32, ranks, "sum", True)
    exact, magnitude = embedding.reference(problem, [embedding.Tables(*t) for t in everybody], rank)
    bound = embedding.error_bound(problem, exact, magnitude, 5)
    shape = (problem.batch_max, problem.all_tables, dim)
    return "embedding_all_to_all", [*everybody[rank], list(tables), "sum"], shape, exact, bound


def _gemm(rank: int, ranks: int, seed: int) -> tuple:
    from kernels import gemm_all_to_all as gemm

    rows, rows_out, n, k, experts = 96, 96 * ranks, 80, 64, 2
    problem = gemm.Problem(rows, rows_out, n, k, experts, torch.bfloat16, ranks, True)

    def make(r: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(10 * seed + r)
        return [
            torch.randn(rows, k, generator=generator).bfloat16(),
            torch.randn(experts, n, k, generator=generator).bfloat16(),
            torch.randint(0, rows // (experts * ranks) + 1, (experts, ranks), generator=generator, dtype=torch.int32),
            torch.rand(rows, generator=generator),
        ]

    everybody = [make(r) for r in range(ranks)]
    all_counts = torch.stack([t[2] for t in everybody])
    operands = [
        gemm.Experts(x, w, counts, gemm.destination_offsets(all_counts, r), scale)
        for r, (x, w, counts, scale) in enumerate(everybody)
    ]
    exact, magnitude, _ = gemm.reference(problem, operands, rank)
    mine = operands[rank]
    args = [mine.x, mine.weight, mine.counts, mine.dst_offsets, mine.scale, rows_out]
    return "gemm_all_to_all", args, (rows_out, n), exact, gemm.error_bound(problem, exact, magnitude)


def _right(actual: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor) -> bool:
    return bool(((actual.cpu().double() - expected).abs() <= bound).all())


def _check(make: object, rank: int, ranks: int) -> None:
    from kernels import ops

    def on_device(operands: list) -> list:
        return [t.cuda() if isinstance(t, torch.Tensor) else t for t in operands]

    name = ops.group_name(None)
    operator, operands, shape, expected, bound = make(rank, ranks, 0)
    args = [*on_device(operands), name]
    owned, into = getattr(torch.ops.fusedcc, operator), getattr(torch.ops.fusedcc, f"{operator}_out")
    dtype = args[0].dtype

    # Three results held alive.
    others = [make(rank, ranks, seed) for seed in (1, 2)]
    results = [owned(*args), *(owned(*on_device(o[1]), name) for o in others)]
    for result, (want, limit) in zip(results, [(expected, bound), *((o[3], o[4]) for o in others)], strict=True):
        assert _right(result, want, limit), operator

    # Zero-copy, then the same in a graph that is replayed with other inputs.
    out = ops.empty_symmetric(shape, dtype)
    into(*args, out)
    assert _right(out[: len(expected)], expected, bound), operator
    static = [t.clone() if isinstance(t, torch.Tensor) else t for t in args]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        into(*static, out)
        copied = owned(*static)
        with torch.cuda.graph(graph, stream=stream):
            into(*static, out)
            copied = owned(*static)
    torch.cuda.current_stream().wait_stream(stream)
    for _, operands, _, want, limit in (*others, others[0]) * 5:
        for place, value in zip(static, on_device(operands), strict=False):
            if isinstance(place, torch.Tensor):
                place.copy_(value)
        out.fill_(0)
        copied.fill_(float("nan"))
        graph.replay()
        assert _right(out[: len(want)], want, limit) and _right(copied, want, limit), operator

    torch.library.opcheck(into, (*args, out))
    train = [t.clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in args]
    torch.library.opcheck(owned, tuple(train), rtol=2e-2, atol=2e-2)
    compiled = torch.compile(lambda *a: owned(*a) * 2, fullgraph=True)
    assert torch.equal(compiled(*args), owned(*args) * 2), operator


def _rank(rank: int, ranks: int, store: str) -> None:
    sys.path.insert(0, str(ROOT))
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    # The second group has the first one's name, and must not get its memory, which went with it.
    for number, makes in enumerate(((_gemv, _embedding, _gemm), (_gemv,))):
        dist.init_process_group("nccl", f"file://{store}{number}", rank=rank, world_size=ranks, device_id=device)
        for make in makes:
            _check(make, rank, ranks)
            torch.cuda.synchronize()
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*out is not symmetric")
def test_operators(tmp_path):
    mp.spawn(_rank, (GPUS, str(tmp_path / "store")), nprocs=GPUS)


@pytest.mark.parametrize("module", ["dlrm", "decoder", "moe"])
def test_examples(module):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(GPUS)]
    done = subprocess.run(
        [*command, "-m", f"kernels.examples.{module}", "--check"],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{module}: {GPUS} ranks (cuda, nccl): fused equals bulk: ")
