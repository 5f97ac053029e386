"""torch.compile(fullgraph=True) with inductor of every operator, both faces, and every layer: as without, forward and back.

FUSEDCC_LONG=1 python -m pytest tests/kernels/test_inductor.py     # a minute of compiling; else one operator's gradients only
"""

import os
import shutil

import pytest
import test_ops
import test_ops_embedding
import test_ops_gemm
import torch
import torch.distributed as dist
from torch_ranks import pool

WORLD = 2
LONG = pytest.mark.skipif("FUSEDCC_LONG" not in os.environ, reason="compiles for long: set FUSEDCC_LONG=1")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler for CPUs")


def fullgraph(function):
    return torch.compile(function, backend="inductor", fullgraph=True)


def same(function, *operands: torch.Tensor | None) -> None:
    """Result and gradients of a function of tensors, compiled and not, from operands of their own."""
    ways = []
    for run in (function, fullgraph(function)):
        own = [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in operands]
        leaves = [t.requires_grad_() for t in own if isinstance(t, torch.Tensor) and t.is_floating_point()]
        result = run(*own)
        result.square().sum().backward()
        ways.append((result, *(t.grad for t in leaves)))
    for eager, compiled in zip(*ways, strict=True):
        torch.testing.assert_close(eager, compiled, rtol=1e-5, atol=1e-5)  # inductor fuses and reorders float32 sums


def gemv() -> None:
    from kernels import ops

    x, w = test_ops.operands(dist.get_rank(), 24, 16, 2)
    same(lambda x, w, b: torch.relu(ops.gemv_all_reduce(x * 2, w, b)) + 1, x, w, torch.ones(24))


def embedding() -> None:
    from kernels import ops

    weight, *bags = test_ops_embedding.operands(dist.get_rank(), 5)
    tables = test_ops_embedding.TABLES
    same(lambda w, *bags: ops.embedding_all_to_all(w * 2, *bags, tables=tables).tanh(), weight, *bags)


def gemm() -> None:
    from kernels import ops

    rows, *rest = test_ops_gemm.operands(dist.get_rank())
    rows_out = test_ops_gemm.ROWS_OUT
    same(lambda x, *rest: torch.relu(ops.gemm_all_to_all(x + 1, *rest, rows_out=rows_out)), rows, *rest)


def test_gemv():
    pool(WORLD).run(gemv)


@LONG
@pytest.mark.parametrize("program", [embedding, gemm])
def test_other_owned_results(program):
    pool(WORLD).run(program)


def zero_copy_faces() -> None:
    """The compiled function writes into the symmetric tensor that it was handed, also when called again."""
    from kernels import ops

    rank = dist.get_rank()
    x, w = test_ops.operands(rank, 24, 16, 2)
    bags, tables = test_ops_embedding.operands(rank, 5), test_ops_embedding.TABLES
    rows = test_ops_gemm.operands(rank)
    cases = [
        ((2, 24), lambda out, x: ops.gemv_all_reduce_out(x * 2, w, out=out), x),
        ((3, sum(tables), test_ops_embedding.DIM), lambda out, w: ops.embedding_all_to_all_out(w * 2, *bags[1:], tables=tables, out=out), bags[0]),
        ((test_ops_gemm.ROWS_OUT, test_ops_gemm.N), lambda out, x: ops.gemm_all_to_all_out(x * 2, *rows[1:], out=out), rows[0]),
    ]  # fmt: skip
    for shape, function, operand in cases:
        eager, compiled = (ops.empty_symmetric(shape, torch.float32) for _ in range(2))
        run = fullgraph(function)
        for factor in (1, 3):
            function(eager, operand * factor)
            run(compiled, operand * factor)
            assert torch.equal(compiled, eager) and compiled.any()


@pytest.mark.filterwarnings("ignore:.*out is not symmetric")
def test_zero_copy():
    pool(WORLD).run(zero_copy_faces)


def layers() -> None:
    from kernels.modules import EmbeddingAllToAll, ExpertCombine, RowParallelLinear

    rank = dist.get_rank()
    torch.manual_seed(0)
    linear, x, residual = RowParallelLinear(24, 30), torch.randn(3, 12), torch.randn(3, 30)
    same(lambda x, residual: linear(torch.relu(x), residual), x, residual)
    same(lambda x: linear(x).tanh(), torch.randn(2, 9, 12))  # a prefill: the library's way

    _, _, indices, offsets, samples = test_ops_embedding.operands(rank, 5)
    embedding = EmbeddingAllToAll((5, 8, 5), test_ops_embedding.DIM, "mean")
    same(lambda samples: embedding(indices, offsets, samples * 2), samples)

    combine = ExpertCombine(WORLD * test_ops_gemm.EXPERTS, test_ops_gemm.K, test_ops_gemm.N)
    rows, _, counts, _, scale = test_ops_gemm.operands(rank)
    same(lambda rows, scale: combine(torch.relu(rows), counts, scale, rows_out=test_ops_gemm.ROWS_OUT), rows, scale)


@LONG
def test_layers():
    pool(WORLD).run(layers)
