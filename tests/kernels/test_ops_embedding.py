"""torch.ops.fusedcc.embedding_all_to_all: two ranks under gloo, CPU tensors, both faces."""

import pytest
import torch
import torch.distributed as dist
from torch_ranks import pool, within

WORLD = 2
TABLES = (2, 1)
DIM = 12


def operands(rank: int, batch: int, dtype: torch.dtype = torch.float32, weighted: bool = True, seed: int = 0) -> tuple:
    """(weight, table_offsets, indices, offsets, per_sample_weights) of one rank; bags of 0 to 4 indices, the first empty."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    rows = [5 + 3 * table for table in range(TABLES[rank])]
    lengths = torch.randint(0, 5, (TABLES[rank], batch), generator=generator)
    lengths[:, 0] = 0
    counts = lengths.sum(1).tolist()
    indices = torch.cat([torch.randint(0, r, (n,), generator=generator) for r, n in zip(rows, counts, strict=True)])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
    return (
        torch.randn(sum(rows), DIM, generator=generator).to(dtype),
        torch.tensor([sum(rows[:table]) for table in range(TABLES[rank])]),
        indices,
        offsets,
        torch.rand(len(indices), generator=generator) if weighted else None,
    )


def exact(rank: int, batch: int, dtype: torch.dtype, weighted: bool, mode: str, seed: int = 0) -> tuple:
    """(float64 result of a rank, bound of the fused one)."""
    from kernels import embedding_all_to_all as embedding

    problem = embedding.Problem(batch, TABLES, DIM, dtype, WORLD, mode, weighted)
    tables = [embedding.Tables(*operands(r, batch, dtype, weighted, seed)) for r in range(WORLD)]
    result, magnitude = embedding.reference(problem, tables, rank)
    return result, embedding.error_bound(problem, result, magnitude, 4)


def both_faces(batch: int, dtype: torch.dtype, weighted: bool, mode: str) -> None:
    from kernels import ops

    rank = dist.get_rank()
    mine = operands(rank, batch, dtype, weighted)
    expected, bound = exact(rank, batch, dtype, weighted, mode)
    owned = ops.embedding_all_to_all(*mine, tables=TABLES, pooling_mode=mode)
    assert within(owned, expected, bound)
    out = ops.empty_symmetric((-(-batch // WORLD), sum(TABLES), DIM), dtype)
    out.fill_(float("nan"))
    again = ops.embedding_all_to_all_out(*mine, tables=TABLES, pooling_mode=mode, group=dist.group.WORLD, out=out)
    assert again is out and torch.equal(out[: len(owned)], owned)


@pytest.mark.parametrize(
    ("batch", "dtype", "weighted", "mode"),
    [
        (7, torch.float32, True, "sum"),
        (4, torch.bfloat16, False, "mean"),
        (6, torch.float16, True, "mean"),
        (1, torch.float32, False, "sum"),
    ],
)
def test_both_faces(batch, dtype, weighted, mode):
    pool(WORLD).run(both_faces, batch, dtype, weighted, mode)


def three_alive() -> None:
    from kernels import ops

    rank, batches = dist.get_rank(), (5, 9, 5)
    results = [
        ops.embedding_all_to_all(*operands(rank, batch, seed=i), tables=TABLES) for i, batch in enumerate(batches)
    ]
    for i, (batch, result) in enumerate(zip(batches, results, strict=True)):
        assert within(result, *exact(rank, batch, torch.float32, True, "sum", seed=i)), i


def test_three_results_stay_right_while_alive():
    pool(WORLD).run(three_alive)


def opcheck() -> None:
    from kernels import ops

    name, (weight, starts, indices, offsets, samples) = ops.group_name(None), operands(dist.get_rank(), 5)
    out = ops.empty_symmetric((3, sum(TABLES), DIM), torch.float32)
    rest = (list(TABLES), "mean", name)
    fused = torch.ops.fusedcc
    torch.library.opcheck(fused.embedding_all_to_all_out, (weight, starts, indices, offsets, samples, *rest, out))
    train = (weight.requires_grad_(), starts, indices, offsets, samples.requires_grad_())
    torch.library.opcheck(fused.embedding_all_to_all, (*train, *rest))


@pytest.mark.filterwarnings("ignore:.*out is not symmetric")
def test_opcheck():
    pool(WORLD).run(opcheck)


def compiled() -> None:
    from kernels import ops

    def model(weight, starts, indices, offsets, samples):
        pooled = ops.embedding_all_to_all(weight * 2, starts, indices, offsets, samples, tables=TABLES)
        return torch.relu(pooled) + 1

    rest = operands(dist.get_rank(), 5)[1:]
    ways = []
    for layer in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        weight = operands(dist.get_rank(), 5)[0].requires_grad_()
        result = layer(weight, *rest)
        result.sum().backward()
        ways.append((result, weight.grad))
    assert torch.equal(ways[0][0], ways[1][0])
    torch.testing.assert_close(ways[0][1], ways[1][1])


def test_compile_fullgraph():
    pool(WORLD).run(compiled)


def gradients(dtype: torch.dtype, mode: str) -> None:
    from kernels import ops
    from kernels.bounds import sum_bound

    rank, batch = dist.get_rank(), 7
    weight, starts, indices, offsets, samples = operands(rank, batch, dtype)
    weight.requires_grad_()
    samples.requires_grad_()
    # Padding behind the last bag, as a captured graph has it, belongs to no bag and gets no gradient.
    padded = torch.cat([indices, torch.full((3,), -1)])
    padded_samples = torch.cat([samples, samples.new_ones(3)])
    result = ops.embedding_all_to_all(weight, starts, padded, offsets, padded_samples, tables=TABLES, pooling_mode=mode)
    seeds = [torch.randn(n, sum(TABLES), DIM, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (4, 3)]
    result.backward(seeds[rank])

    # The reference: float64 autograd through a dense matrix of bags by rows, for this rank's tables.
    first = sum(TABLES[:rank])
    seed = torch.cat(seeds)[:, first : first + TABLES[rank]].transpose(0, 1).reshape(-1, DIM).double()
    w, s = weight.detach().double().requires_grad_(), samples.detach().double().requires_grad_()
    lengths = offsets.diff()
    bag = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    row = indices + starts[bag // batch]
    scale = s / lengths[bag] if mode == "mean" else s
    (
        torch.zeros(len(lengths), DIM, dtype=torch.float64).index_add(0, bag, w[row] * scale[:, None]) * seed
    ).sum().backward()
    magnitude = torch.zeros_like(w).index_add(0, row, (seed[bag] * scale.detach()[:, None]).abs()).detach()
    most = 4 * int(row.bincount().max())
    assert weight.grad.dtype == dtype and within(weight.grad, w.grad, sum_bound(w.grad, magnitude, most, dtype))
    per_index = (seed[bag] * w.detach()[row]).abs().sum(1) / (lengths[bag] if mode == "mean" else 1)
    assert within(samples.grad, s.grad, sum_bound(s.grad, per_index, 2 * DIM + 1, torch.float32))


@pytest.mark.parametrize(("dtype", "mode"), [(torch.float32, "sum"), (torch.bfloat16, "mean"), (torch.float16, "sum")])
def test_gradients_equal_the_float64_reference(dtype, mode):
    pool(WORLD).run(gradients, dtype, mode)


def mistakes() -> list[str]:
    from kernels import ops

    weight, starts, indices, offsets, samples = operands(dist.get_rank(), 4)
    messages = []
    for wrong in (
        lambda: ops.embedding_all_to_all(weight, starts, indices, offsets, tables=(1, 1, 1)),
        lambda: ops.embedding_all_to_all(weight, starts, indices, offsets, tables=TABLES, pooling_mode="max"),
        lambda: ops.embedding_all_to_all(weight, starts, indices.int(), offsets, tables=TABLES),
        lambda: ops.embedding_all_to_all(weight, starts, indices, offsets, samples.double(), tables=TABLES),
        lambda: ops.embedding_all_to_all(weight[0], starts, indices, offsets, tables=TABLES),
        lambda: ops.embedding_all_to_all(weight.double(), starts, indices, offsets, tables=TABLES),
    ):
        with pytest.raises(ops.ProblemError) as error:
            wrong()
        messages.append(str(error.value))
    return messages


def test_a_mistake_is_one_line_that_names_it():
    for messages in pool(WORLD).run(mistakes):
        assert messages == [
            "tables is [1, 1, 1]; allowed: one number for each of 2 ranks",
            "pooling_mode is 'max'; allowed: sum, mean",
            "dtype of offsets is 'torch.int64'; allowed: torch.int32",
            "dtype of per_sample_weights is 'torch.float64'; allowed: torch.float32",
            "shape of weight is (12,); allowed: [rows, dim]",
            "dtype is 'torch.float64'; allowed: float32, bfloat16 or float16",
        ]
