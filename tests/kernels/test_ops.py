"""torch.ops.fusedcc.gemv_all_reduce: two ranks under gloo, CPU tensors, both faces."""

import pytest
import torch
import torch.distributed as dist
from torch_ranks import pool, within

WORLD = 2


def operands(rank: int, m: int, k: int, batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple:
    """(input, weight) of one rank: any rank can make any other's."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    input = torch.randn(batch, k, generator=generator).to(dtype)
    return input, torch.randn(m, k, generator=generator).to(dtype)


def exact(m: int, k: int, batch: int, dtype: torch.dtype, seed: int = 0, bias=None, residual=None) -> tuple:
    """(float64 result, bound of the fused one) over all ranks."""
    from kernels import gemv_all_reduce as gemv

    pairs = [operands(rank, m, k, batch, dtype, seed) for rank in range(WORLD)]
    result, magnitude = gemv.reference([w for _, w in pairs], [x for x, _ in pairs], bias, residual)
    problem = gemv.Problem(m, k, batch, dtype, WORLD, bias is not None, residual is not None)
    return result, gemv.error_bound(problem, result, magnitude)


def both_faces(m: int, k: int, batch: int, dtype: torch.dtype) -> None:
    from kernels import ops

    input, weight = operands(dist.get_rank(), m, k, batch, dtype)
    generator = torch.Generator().manual_seed(9)
    bias, residual = torch.randn(m, generator=generator).to(dtype), torch.randn(batch, m, generator=generator).to(dtype)
    expected, bound = exact(m, k, batch, dtype, 0, bias, residual)
    owned = ops.gemv_all_reduce(input, weight, bias, residual)
    assert within(owned, expected, bound)
    out = ops.empty_symmetric((batch, m), dtype)
    out.fill_(float("nan"))
    again = ops.gemv_all_reduce_out(input, weight, bias, residual, dist.group.WORLD, out=out)
    assert again is out and torch.equal(out, owned)
    parts = [torch.empty_like(owned) for _ in range(WORLD)]
    dist.all_gather(parts, owned)
    assert torch.equal(parts[0], parts[1])


@pytest.mark.parametrize(
    ("m", "k", "batch", "dtype"),
    [(33, 70, 1, torch.float32), (40, 33, 3, torch.bfloat16), (17, 64, 8, torch.float16), (1, 1, 1, torch.float32)],
)
def test_both_faces(m, k, batch, dtype):
    pool(WORLD).run(both_faces, m, k, batch, dtype)


def three_alive() -> None:
    from kernels import ops

    shapes = [(20, 30, 1), (50, 20, 2), (20, 30, 1)]
    results = [ops.gemv_all_reduce(*operands(dist.get_rank(), *shape, seed=i)) for i, shape in enumerate(shapes)]
    for i, (shape, result) in enumerate(zip(shapes, results, strict=True)):
        assert within(result, *exact(*shape, torch.float32, seed=i)), i


def test_three_results_stay_right_while_alive():
    pool(WORLD).run(three_alive)


def out_without_a_copy() -> None:
    from kernels import ops
    from kernels.ops import memory

    out = ops.empty_symmetric((2, 24), torch.float32)
    input, weight = operands(dist.get_rank(), 24, 16, 2)
    ops.gemv_all_reduce_out(input, weight, out=out)  # sets everything up
    symm = memory.symmetric_memory(None, "cpu")
    symm.state["ops.results"].pop("gemv_all_reduce", None)
    ops.gemv_all_reduce_out(input, weight, out=out)
    assert "gemv_all_reduce" not in symm.state["ops.results"], "the symmetric out took the way of the copied result"
    with pytest.warns(UserWarning, match="empty_symmetric"):
        copied = ops.gemv_all_reduce_out(input, weight, out=torch.empty(2, 24))
    assert torch.equal(copied, out)
    version = out._version
    ops.gemv_all_reduce_out(input, weight, out=out)
    assert out._version > version, "autograd must see that out was written"


def test_symmetric_out_is_written_in_place_and_any_other_warns():
    pool(WORLD).run(out_without_a_copy)


def opcheck() -> None:
    from kernels import ops

    name = ops.group_name(None)
    input, weight = operands(dist.get_rank(), 12, 20, 2)
    bias, residual = torch.ones(12), torch.ones(2, 12)
    out = ops.empty_symmetric((2, 12), torch.float32)
    torch.library.opcheck(torch.ops.fusedcc.gemv_all_reduce_out, (input, weight, bias, residual, name, out))
    train = [t.requires_grad_() for t in (input, weight, bias, residual)]
    torch.library.opcheck(torch.ops.fusedcc.gemv_all_reduce, (*train, name))
    torch.library.opcheck(torch.ops.fusedcc.gemv_all_reduce, (input, weight, None, None, name))


@pytest.mark.filterwarnings("ignore:.*out is not symmetric")
def test_opcheck():
    pool(WORLD).run(opcheck)


def compiled(backend: str) -> None:
    from kernels import ops

    def layer(input, weight):
        return torch.relu(ops.gemv_all_reduce(input * 2, weight)) + 1

    input, weight = operands(dist.get_rank(), 24, 16, 2)
    a, b = [[t.clone().requires_grad_() for t in (input, weight)] for _ in range(2)]
    expected, actual = layer(*a), torch.compile(layer, backend=backend, fullgraph=True)(*b)
    expected.sum().backward()
    actual.sum().backward()
    assert torch.equal(actual, expected)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_fullgraph(backend):
    pool(WORLD).run(compiled, backend)


def gradients(dtype: torch.dtype) -> None:
    from kernels import ops
    from kernels.bounds import sum_bound

    m, k, batch = 21, 18, 4
    rank = dist.get_rank()
    input, weight = (t.requires_grad_() for t in operands(rank, m, k, batch, dtype))
    bias, residual = (torch.zeros(s, dtype=dtype, requires_grad=True) for s in ((m,), (batch, m)))
    seed = torch.randn(batch, m, generator=torch.Generator().manual_seed(5)).to(dtype)
    ops.gemv_all_reduce(input, weight, bias, residual).backward(seed)

    # The reference: one process's autograd in float64 over all ranks' operands.
    pairs = [[t.double().requires_grad_() for t in operands(r, m, k, batch, dtype)] for r in range(WORLD)]
    more = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in ((m,), (batch, m))]
    sum(x @ w.T for x, w in pairs).add(more[0]).add(more[1]).backward(seed.double())
    g, x, w = seed.double().abs(), *(t.detach().abs() for t in pairs[rank])
    for name, actual, expected, magnitude, terms in (
        ("input", input.grad, pairs[rank][0].grad, g @ w, 2 * m),
        ("weight", weight.grad, pairs[rank][1].grad, g.T @ x, 2 * batch),
        ("bias", bias.grad, more[0].grad, g.sum(0), batch),
        ("residual", residual.grad, more[1].grad, g, 1),
    ):
        assert actual.dtype == dtype and actual.abs().max() > 0
        assert within(actual, expected, sum_bound(expected, magnitude, terms, dtype)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_equal_the_float64_reference(dtype):
    pool(WORLD).run(gradients, dtype)


def mistakes() -> list[str]:
    from kernels import ops

    rank = dist.get_rank()
    input, weight = operands(rank, 12, 20, 2)
    out = ops.empty_symmetric((2, 12), torch.float32)
    messages = []
    for wrong in (
        lambda: ops.gemv_all_reduce(input[:, :3], weight),
        lambda: ops.gemv_all_reduce(input.half(), weight),
        lambda: ops.gemv_all_reduce(input.double(), weight.double()),
        lambda: ops.gemv_all_reduce(input.repeat(8, 1), weight),
        lambda: ops.gemv_all_reduce(input, weight, torch.ones(5)),
        lambda: ops.gemv_all_reduce(input, weight.T.contiguous().T),
        lambda: ops.gemv_all_reduce(operands(rank, 9 + rank, 20, 2)[0], operands(rank, 9 + rank, 20, 2)[1]),
        lambda: ops.gemv_all_reduce_out(input, weight, out=out[:1]),
        lambda: torch.compile(ops.gemv_all_reduce, backend="eager", fullgraph=True)(input[:, :3], weight),
    ):
        with pytest.raises((ops.ProblemError, RuntimeError)) as error:
            wrong()
        messages.append(str(error.value))
    with pytest.raises(RuntimeError, match="nobody"):
        ops.gemv_all_reduce(input, weight, group="nobody")
    ops.gemv_all_reduce(input, weight)  # still in step
    return messages


def late_mistakes() -> None:
    from kernels import gemv_all_reduce as gemv
    from kernels import ops
    from kernels.ops import memory

    rank = dist.get_rank()
    input, weight = operands(rank, 12, 20, 2)
    symm = memory.symmetric_memory(None, "cpu")
    problem = gemv.Problem(12, 20, 2, torch.float32, WORLD)
    with pytest.raises(ops.ProblemError, match=r"^shape of x is \(2, 3\); allowed: \(2, 20\)$"):
        memory.run_owned(symm, "gemv_all_reduce", problem, (2, 12), (input[:, :3].contiguous(), weight, None, None))
    a, b = ops.empty_symmetric((2, 12), torch.float32), ops.empty_symmetric((2, 12), torch.float32)
    with pytest.raises(ops.ProblemError, match=rf"of out of rank {1 - rank} in gemv_all_reduce is"):
        ops.gemv_all_reduce_out(input, weight, out=a if rank == 0 else b)
    assert within(ops.gemv_all_reduce(input, weight), *exact(12, 20, 2, torch.float32))  # still in step


def test_a_mistake_found_while_interpreting_or_by_comparing_ranks_is_one_line_too():
    pool(WORLD).run(late_mistakes)


def test_a_mistake_is_one_line_that_names_it():
    for rank, messages in enumerate(pool(WORLD).run(mistakes)):
        assert all("\n" not in m for m in messages[:-1])
        assert messages[:6] == [
            "shape of input is (2, 3); allowed: [batch, 20]",
            "dtype of input is 'torch.float16'; allowed: torch.float32",
            "dtype is 'torch.float64'; allowed: float32, bfloat16 or float16",
            "batch is 16; allowed: 1 to 8",
            "shape of bias is (5,); allowed: (12,)",
            "stride of weight is (1, 12); allowed: contiguous",
        ]
        assert messages[6].startswith(f"problem of rank {1 - rank} in gemv_all_reduce is Problem(m={10 - rank},")
        assert messages[7] == "shape of out is (1, 12); allowed: (2, 12)"
        assert "shape of input is (2, 3); allowed: [batch, 20]" in messages[8]
