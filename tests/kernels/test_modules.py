"""The layers of kernels.modules: fused equals the library's way and one process's own torch, forward and backward."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from test_ops_embedding import DIM
from torch.utils._python_dispatch import TorchDispatchMode
from torch_ranks import pool

WORLD = 2
CLOSE = {"rtol": 0, "atol": 1e-5}  # float32; sums of up to 100 terms of about 1, in another order


class Calls(TorchDispatchMode):
    """Names of the fusedcc operators that were called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fusedcc":
            self.names.append(func._schema.name.removeprefix("fusedcc::"))
        return func(*args, **(kwargs or {}))


def both_ways(module: torch.nn.Module, operator: str, leaves: list[torch.Tensor], *args, **kwargs) -> tuple:
    """(result, gradients of `leaves`) of the fused way, after comparing both ways and what they called."""
    ways = []
    for fused in (True, False):
        module.fused = fused
        with Calls() as calls:
            result = module(*args, **kwargs)
        assert calls.names == ([operator] if fused else [])
        grads = torch.autograd.grad((result * torch.linspace(-1, 1, result.shape[-1])).sum(), leaves)
        ways.append((result.detach(), grads))
    torch.testing.assert_close(ways[0], ways[1], **CLOSE)
    return ways[0]


def row_parallel() -> None:
    from kernels.modules import RowParallelLinear

    torch.manual_seed(0)
    rank, whole = dist.get_rank(), torch.nn.Linear(24, 30)
    layer = RowParallelLinear(24, 30)
    layer.load_full(whole.weight, whole.bias)
    x, residual = torch.randn(3, 24), torch.randn(3, 30, requires_grad=True)
    mine = x[:, 12 * rank : 12 * rank + 12].clone().requires_grad_()
    leaves = [layer.weight, layer.bias, mine, residual]
    result, grads = both_ways(layer, "gemv_all_reduce", leaves, mine, residual)

    x.requires_grad_()
    expected = whole(x) + residual
    torch.testing.assert_close(result, expected, **CLOSE)
    loss = (expected * torch.linspace(-1, 1, 30)).sum()
    weight, bias, full, extra = torch.autograd.grad(loss, [whole.weight, whole.bias, x, residual])
    columns = slice(12 * rank, 12 * rank + 12)
    torch.testing.assert_close(grads, (weight[:, columns], bias, full[:, columns], extra), **CLOSE)

    layer.fused = True
    with Calls() as calls:  # a prefill: more rows than a GEMV takes
        prompt = layer(torch.ones(2, 9, 12))
    assert prompt.shape == (2, 9, 30) and calls.names == []
    torch.testing.assert_close(prompt[0, 0], whole(torch.ones(24)), **CLOSE)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(mine, residual), expected, **CLOSE)


def embedding(mode: str) -> None:
    from kernels.modules import EmbeddingAllToAll

    rank, batch, rows = dist.get_rank(), 5, (6, 9, 4)
    layer = EmbeddingAllToAll(rows, DIM, mode)
    assert layer.tables == [2, 1]
    torch.manual_seed(0)  # what follows is alike on both ranks
    tables = [torch.randn(r, DIM, requires_grad=True) for r in rows]
    lengths = torch.randint(0, 4, (3, batch))
    bags = [torch.randint(0, r, (int(n),)) for r, line in zip(rows, lengths, strict=True) for n in line]
    samples = [torch.rand(len(bag)) for bag in bags]
    mine = range(2 * batch) if rank == 0 else range(2 * batch, 3 * batch)
    with torch.no_grad():
        layer.weight.copy_(torch.cat(tables[:2] if rank == 0 else tables[2:]))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten()[list(mine)].cumsum(0)])
    own = torch.cat([samples[i] for i in mine]).requires_grad_()
    args = (torch.cat([bags[i] for i in mine]), offsets, own)
    result, grads = both_ways(layer, "embedding_all_to_all", [layer.weight, own], *args)

    pooled = []
    for i, (bag, scale) in enumerate(zip(bags, samples, strict=True)):
        total = (tables[i // batch][bag] * scale[:, None]).sum(0)
        pooled.append(total / max(1, len(bag)) if mode == "mean" else total)
    everything = torch.stack(pooled).view(3, batch, DIM).transpose(0, 1)
    torch.testing.assert_close(result, everything[:3] if rank == 0 else everything[3:], **CLOSE)
    weights = torch.autograd.grad((everything * torch.linspace(-1, 1, DIM)).sum(), tables)
    torch.testing.assert_close(grads[0], torch.cat(weights[:2] if rank == 0 else weights[2:]), **CLOSE)


def combine() -> None:
    from kernels.modules import ExpertCombine

    torch.manual_seed(0)
    rank, counts = dist.get_rank(), torch.tensor([[[3, 2], [0, 4]], [[5, 0], [1, 6]]], dtype=torch.int32)
    layer = ExpertCombine(4, 10, 16)
    inputs, scales, weights = torch.randn(2, 13, 10), torch.rand(2, 13), torch.randn(4, 16, 10)
    with torch.no_grad():
        layer.weight.copy_(weights[2 * rank : 2 * rank + 2])
    mine, scale = inputs[rank].clone().requires_grad_(), scales[rank].clone().requires_grad_()
    leaves = [layer.weight, mine, scale]
    result, _ = both_ways(layer, "gemm_all_to_all", leaves, mine, counts[rank], scale, rows_out=16)

    arrived = []
    for source in range(2):
        blocks = inputs[source].split([*counts[source].flatten().tolist(), 13 - int(counts[source].sum())])
        factors = scales[source].split([len(block) for block in blocks])
        for expert in range(2):
            block = expert * 2 + rank
            arrived.append(F.linear(blocks[block], weights[2 * source + expert]) * factors[block][:, None])
    expected = torch.cat(arrived)
    torch.testing.assert_close(result[: len(expected)], expected, **CLOSE)
    assert not result[len(expected) :].any()


def mistakes() -> list[str]:
    from kernels import modules
    from kernels.errors import ProblemError

    messages = []
    for wrong in (
        lambda: modules.RowParallelLinear(25, 8),
        lambda: modules.EmbeddingAllToAll((10,), 4),
        lambda: modules.ExpertCombine(3, 8, 8),
    ):
        with pytest.raises(ProblemError) as error:
            wrong()
        messages.append(str(error.value))
    return messages


def test_row_parallel_linear():
    pool(WORLD).run(row_parallel)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_all_to_all(mode):
    pool(WORLD).run(embedding, mode)


def test_expert_combine():
    pool(WORLD).run(combine)


def test_a_layer_that_cannot_be_spread_says_so():
    assert pool(WORLD).run(mistakes)[0] == [
        "in_features is 25; allowed: a multiple of 2 ranks",
        "len(num_embeddings) is 1; allowed: 2, the ranks, or more",
        "experts is 3; allowed: a multiple of 2 ranks",
    ]
