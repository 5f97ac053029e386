"""torch.ops.fusedcc.gemm_all_to_all: two ranks under gloo, CPU tensors, both faces."""

import pytest
import torch
import torch.distributed as dist
from torch_ranks import pool, within

WORLD = 2
EXPERTS, ROWS, ROWS_OUT = 2, 14, 20
N, K = 18, 10
COUNTS = (((3, 2), (0, 4)), ((5, 0), (1, 6)))  # [rank][expert][destination]; rank 0 uses 9 of its 14 rows


def operands(rank: int, dtype: torch.dtype = torch.float32, scaled: bool = True, seed: int = 0) -> tuple:
    """(input, weight, counts, dst_offsets, scale) of one rank."""
    from kernels.gemm_all_to_all import destination_offsets

    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return (
        torch.randn(ROWS, K, generator=generator).to(dtype),
        torch.randn(EXPERTS, N, K, generator=generator).to(dtype),
        torch.tensor(COUNTS[rank], dtype=torch.int32),
        destination_offsets(torch.tensor(COUNTS), rank),
        torch.rand(ROWS, generator=generator) + 0.5 if scaled else None,
    )


def exact(rank: int, dtype: torch.dtype, scaled: bool, seed: int = 0) -> tuple:
    """(float64 result of a rank, bound of the fused one, which rows a block covers)."""
    from kernels import gemm_all_to_all as gemm

    problem = gemm.Problem(ROWS, ROWS_OUT, N, K, EXPERTS, dtype, WORLD, scaled)
    everybody = [gemm.Experts(*operands(r, dtype, scaled, seed)) for r in range(WORLD)]
    result, magnitude, covered = gemm.reference(problem, everybody, rank)
    return result, gemm.error_bound(problem, result, magnitude), covered


def both_faces(dtype: torch.dtype, scaled: bool) -> None:
    from kernels import ops

    rank = dist.get_rank()
    mine = operands(rank, dtype, scaled)
    expected, bound, covered = exact(rank, dtype, scaled)
    owned = ops.gemm_all_to_all(*mine, rows_out=ROWS_OUT)
    assert within(owned, expected, bound) and not covered.all()
    assert torch.equal(owned[~covered], torch.zeros_like(owned[~covered]))
    out = ops.empty_symmetric((ROWS_OUT, N), dtype)
    out.fill_(7)
    again = ops.gemm_all_to_all_out(*mine, group=dist.group.WORLD, out=out)
    assert again is out and torch.equal(out[covered], owned[covered]) and bool((out[~covered] == 7).all())
    with pytest.warns(UserWarning, match="not symmetric"):
        copied = ops.gemm_all_to_all_out(*mine, out=torch.full_like(owned, 7))
    assert torch.equal(copied, out)


@pytest.mark.parametrize(("dtype", "scaled"), [(torch.float32, True), (torch.bfloat16, True), (torch.float16, False)])
def test_both_faces(dtype, scaled):
    pool(WORLD).run(both_faces, dtype, scaled)


def three_alive() -> None:
    from kernels import ops

    rank = dist.get_rank()
    results = [ops.gemm_all_to_all(*operands(rank, seed=seed), rows_out=ROWS_OUT) for seed in range(3)]
    for seed, result in enumerate(results):
        assert within(result, *exact(rank, torch.float32, True, seed)[:2]), seed


def test_three_results_stay_right_while_alive():
    pool(WORLD).run(three_alive)


def opcheck() -> None:
    from kernels import ops

    name, (input, weight, counts, dst_offsets, scale) = ops.group_name(None), operands(dist.get_rank())
    out = ops.empty_symmetric((ROWS_OUT, N), torch.float32)
    rest = (ROWS_OUT, name)
    fused = torch.ops.fusedcc
    torch.library.opcheck(fused.gemm_all_to_all_out, (input, weight, counts, dst_offsets, None, *rest, out))
    train = (input.requires_grad_(), weight.requires_grad_(), counts, dst_offsets, scale.requires_grad_())
    torch.library.opcheck(fused.gemm_all_to_all, (*train, *rest))


@pytest.mark.filterwarnings("ignore:.*out is not symmetric")
def test_opcheck():
    pool(WORLD).run(opcheck)


def compiled() -> None:
    from kernels import ops

    def layer(input, weight, counts, dst_offsets, scale):
        return torch.relu(ops.gemm_all_to_all(input * 2, weight, counts, dst_offsets, scale, rows_out=ROWS_OUT)) + 1

    ways = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        input, *rest = operands(dist.get_rank())
        input.requires_grad_()
        result = run(input, *rest)
        result.sum().backward()
        ways.append((result, input.grad))
    assert torch.equal(ways[0][0], ways[1][0])
    torch.testing.assert_close(ways[0][1], ways[1][1])


def test_compile_fullgraph():
    pool(WORLD).run(compiled)


def gradients(dtype: torch.dtype, scaled: bool) -> None:
    from kernels import ops
    from kernels.bounds import sum_bound

    rank = dist.get_rank()
    input, weight, counts, dst_offsets, scale = operands(rank, dtype, scaled)
    leaves = [t.requires_grad_() for t in (input, weight, scale) if t is not None]
    result = ops.gemm_all_to_all(input, weight, counts, dst_offsets, scale, rows_out=ROWS_OUT)
    seeds = [torch.randn(ROWS_OUT, N, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(WORLD)]
    result.backward(seeds[rank])

    # The reference: float64 autograd, row by row, of what this rank adds to all ranks' losses.
    x, w, s = (t if t is None else t.detach().double().requires_grad_() for t in (input, weight, scale))
    loss, row, g = torch.zeros((), dtype=torch.float64), 0, torch.zeros(ROWS, N, dtype=torch.float64)
    owner = torch.full((ROWS,), -1)
    for expert in range(EXPERTS):
        for dest in range(WORLD):
            for i in range(COUNTS[rank][expert][dest]):
                seed = seeds[dest][int(dst_offsets[expert, dest]) + i].double()
                g[row], owner[row] = seed, expert
                loss = loss + (seed * (w[expert] @ x[row]) * (1 if s is None else s[row])).sum()
                row += 1
    loss.backward()
    factor = 1 if s is None else s.detach()[:, None]
    magnitudes = [torch.zeros_like(x), torch.zeros_like(w), torch.zeros(ROWS, dtype=torch.float64)]
    for expert in range(EXPERTS):
        mine = (owner == expert)[:, None]
        magnitudes[0] += ((g * factor).abs() * mine) @ w.detach()[expert].abs()
        magnitudes[1][expert] = ((g * factor).abs() * mine).T @ x.detach().abs()
        magnitudes[2] += ((g.abs() * mine) * (x.detach().abs() @ w.detach()[expert].abs().T)).sum(1)
    expected = [t.grad for t in (x, w, s) if t is not None]
    terms = (2 * N + 1, 2 * ROWS + 1, 2 * N + 2 * K)
    for leaf, grad, magnitude, n in zip(leaves, expected, magnitudes[: len(leaves)], terms[: len(leaves)], strict=True):
        assert leaf.grad.abs().max() > 0
        assert within(leaf.grad, grad, sum_bound(grad, magnitude, n, leaf.dtype))


@pytest.mark.parametrize(("dtype", "scaled"), [(torch.float32, True), (torch.bfloat16, True), (torch.float16, False)])
def test_gradients_equal_the_float64_reference(dtype, scaled):
    pool(WORLD).run(gradients, dtype, scaled)


def mistakes() -> list[str]:
    from kernels import ops

    input, weight, counts, dst_offsets, scale = operands(dist.get_rank())
    messages = []
    for wrong in (
        lambda: ops.gemm_all_to_all(input[:, :3], weight, counts, dst_offsets, rows_out=ROWS_OUT),
        lambda: ops.gemm_all_to_all(input, weight[0], counts, dst_offsets, rows_out=ROWS_OUT),
        lambda: ops.gemm_all_to_all(input, weight, counts.long(), dst_offsets, rows_out=ROWS_OUT),
        lambda: ops.gemm_all_to_all(input, weight, counts[:, :1], dst_offsets, rows_out=ROWS_OUT),
        lambda: ops.gemm_all_to_all(input, weight, counts, dst_offsets, rows_out=0),
        lambda: ops.gemm_all_to_all(input, weight, counts, dst_offsets, scale[:4], rows_out=ROWS_OUT),
        lambda: ops.gemm_all_to_all(input.double(), weight, counts, dst_offsets, rows_out=ROWS_OUT),
    ):
        with pytest.raises(ops.ProblemError) as error:
            wrong()
        messages.append(str(error.value))
    return messages


def test_a_mistake_is_one_line_that_names_it():
    for messages in pool(WORLD).run(mistakes):
        assert messages == [
            "shape of input is (14, 3); allowed: [rows, 10]",
            "shape of weight is (18, 10); allowed: [experts, n, k]",
            "dtype of counts is 'torch.int64'; allowed: torch.int32",
            "shape of counts is (2, 1); allowed: (2, 2)",
            "rows_out is 0; allowed: 1 or more",
            "shape of scale is (4,); allowed: (14,)",
            "dtype of input is 'torch.float64'; allowed: torch.float32",
        ]
