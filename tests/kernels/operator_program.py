"""What each rank runs for the operators' tests: calls one after the other, no host synchronisation in between, checked at the end.

Operands come from seeds, so that every rank can make those of the others for the reference. Results lie in one symmetric
buffer that all calls and operators share, poisoned before each call, and are copied aside in stream order.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton.language as tl

from kernels import embedding_all_to_all as embedding
from kernels import embedding_device, gemm_device, gemv_device
from kernels import gemm_all_to_all as gemm
from kernels import gemv_all_reduce as gemv

ARENA = 1 << 17  # bytes of the shared result buffer


def embedding_operands(problem: embedding.Problem, rank: int, seed: int, longest: int) -> embedding.Tables:
    """Tables of 1 to 9 rows; bags of 0 to `longest` indices, about a third of them empty."""
    g = torch.Generator().manual_seed(seed * 64 + rank)
    tables = problem.tables[rank]
    rows = torch.randint(1, 10, (tables,), generator=g)
    starts = rows.cumsum(0) - rows
    lengths = torch.randint(-(longest // 2), longest + 1, (tables * problem.batch,), generator=g).clamp_min(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    indices = (
        torch.rand(int(offsets[-1]), generator=g) * rows.repeat_interleave(problem.batch).repeat_interleave(lengths)
    ).long()
    weight = torch.randn(int(rows.sum()), problem.dim, generator=g).to(problem.dtype)
    factors = torch.randn(len(indices), generator=g) if problem.weighted else None
    kind = problem.index_dtype
    return embedding.Tables(weight, starts, indices.to(kind), offsets.to(kind), factors)


def gemm_counts(problem: gemm.Problem, seed: int, uneven: bool) -> torch.Tensor:
    """int32 [world, experts, world]: even, or random with empty blocks and, of several ranks, one that gets nothing."""
    if not uneven:
        return torch.from_numpy(gemm.even_counts(problem)).repeat(problem.world_size, 1, 1)
    g = torch.Generator().manual_seed(seed)
    blocks = problem.experts * problem.world_size
    ends = torch.randint(0, problem.rows + 1, (problem.world_size, blocks), generator=g).sort(1).values
    counts = ends.diff(dim=1, prepend=torch.zeros(problem.world_size, 1, dtype=torch.int64))
    counts = counts.view(problem.world_size, problem.experts, problem.world_size)
    if problem.world_size > 1:
        counts[:, :, seed % problem.world_size] = 0
    return counts.to(torch.int32)


def gemm_operands(problem: gemm.Problem, rank: int, seed: int, uneven: bool) -> gemm.Experts:
    g = torch.Generator().manual_seed(seed * 64 + rank)
    counts = gemm_counts(problem, seed, uneven)
    x = torch.randn(problem.rows, problem.k, generator=g).to(problem.dtype)
    weight = torch.randn(problem.experts, problem.n, problem.k, generator=g).to(problem.dtype)
    scale = torch.rand(problem.rows, generator=g) if problem.scaled else None
    return gemm.Experts(x, weight, counts[rank].contiguous(), gemm.destination_offsets(counts, rank), scale)


def gemv_operands(problem: gemv.Problem, rank: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed * 64 + rank)
    weight = torch.randn(problem.m, problem.k, generator=g).to(problem.dtype)
    return weight, torch.randn(problem.batch, problem.k, generator=g).to(problem.dtype)


def _on(symm: Any, operands: Any) -> Any:
    """The operands on the rank's device."""
    moved = {name: t.to(symm.device) for name, t in vars(operands).items() if t is not None}
    return replace(operands, **moved)


def _output(symm: Any, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The start of the buffer that all operators share, poisoned."""
    if "arena" not in symm.state:
        symm.state["arena"] = symm.empty(ARENA, torch.uint8, "arena")
    numel = torch.Size(shape).numel()
    out = symm.state["arena"][: numel * dtype.itemsize].view(dtype).view(shape)
    return out.fill_(float("nan"))


def _embedding(symm: Any, problem: embedding.Problem, config: dict, seed: int, how: Callable) -> Callable[[], float]:
    longest = 5
    mine = _on(symm, embedding_operands(problem, symm.rank, seed, longest))
    out = _output(symm, (problem.batch_max, problem.all_tables, problem.dim), problem.dtype)
    result = how(embedding)(
        symm, problem, mine, out, replace(embedding.default_config(problem, symm), **config)
    ).clone()

    def check() -> float:
        everybody = [embedding_operands(problem, r, seed, longest) for r in range(problem.world_size)]
        exact, magnitude = embedding.reference(problem, everybody, symm.rank)
        return worst(result, exact, embedding.error_bound(problem, exact, magnitude, longest))

    return check


def _gemm(symm: Any, problem: gemm.Problem, config: dict, seed: int, how: Callable) -> Callable[[], float]:
    config = dict(config)
    uneven = config.pop("uneven", True)
    mine = _on(symm, gemm_operands(problem, symm.rank, seed, uneven))
    out = _output(symm, (problem.rows_out, problem.n), problem.dtype)
    result = how(gemm)(symm, problem, mine, out, replace(gemm.default_config(problem, symm), **config)).clone()

    def check() -> float:
        everybody = [gemm_operands(problem, r, seed, uneven) for r in range(problem.world_size)]
        exact, magnitude, covered = gemm.reference(problem, everybody, symm.rank)
        assert result.cpu()[~covered].isnan().all(), "a row that no block covers was written"
        return worst(result.cpu()[covered], exact[covered], gemm.error_bound(problem, exact, magnitude)[covered])

    return check


def _gemv(symm: Any, problem: gemv.Problem, config: dict, seed: int, how: Callable) -> Callable[[], float]:
    weight, x = (t.to(symm.device) for t in gemv_operands(problem, symm.rank, seed))
    out = _output(symm, (problem.batch, problem.m), problem.dtype)
    config = replace(gemv.default_config(problem, symm), **config)
    result = how(gemv)(symm, problem, weight, x, out, config=config).clone()

    def check() -> float:
        everybody = [gemv_operands(problem, r, seed) for r in range(problem.world_size)]
        exact, magnitude = gemv.reference([w for w, _ in everybody], [v for _, v in everybody])
        return worst(result, exact, gemv.error_bound(problem, exact, magnitude))

    return check


_RUN = {embedding.Problem: _embedding, gemm.Problem: _gemm, gemv.Problem: _gemv}


def worst(result: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor) -> float:
    """Largest error in units of its bound: right if <= 1; NaN counts as infinity."""
    if not exact.numel():
        return 0.0
    return float(((result.cpu().double() - exact).abs() / bound).nan_to_num(nan=float("inf")).max())


def run(symm: Any, calls: list[tuple[Any, dict]], seed: int, skew_s: float = 0.0, how: str = "fused") -> list[float]:
    """All calls, (problem, changes of the default config) each, back to back; the worst error of each in units of its bound."""
    rng = random.Random(seed * 64 + symm.rank)
    checks = []
    for number, (problem, config) in enumerate(calls):
        time.sleep(rng.random() * skew_s)
        pick = lambda module: getattr(module, how)
        checks.append(_RUN[type(problem)](symm, problem, config, seed * 100 + number, pick))
    symm.barrier()
    return [check() for check in checks]


def refused(symm: Any, problem: Any, config: dict, spoil: dict) -> str:
    """The message with which a call is refused whose configuration or operands are changed."""
    from kernels.errors import ProblemError

    spoil = dict(spoil)
    if isinstance(problem, embedding.Problem):
        module, shape = embedding, (problem.batch_max, problem.all_tables, problem.dim)
    elif isinstance(problem, gemm.Problem):
        module, shape = gemm, (problem.rows_out, problem.n)
    else:
        module, shape = gemv, (problem.batch, problem.m)
    out = spoil.pop("out") if "out" in spoil else _output(symm, shape, problem.dtype)
    if module is gemv:
        weight, x = gemv_operands(problem, symm.rank, 1)
        operands = ({"weight": weight, "x": x} | spoil).values()
    elif module is gemm:
        operands = [replace(gemm_operands(problem, symm.rank, 1, True), **spoil)]
    else:
        operands = [replace(embedding_operands(problem, symm.rank, 1, 3), **spoil)]
    try:
        changed = replace(module.default_config(problem, symm), **config)
        module.fused(symm, problem, *operands, out, config=changed)
    except ProblemError as error:
        return str(error)
    return ""


def visits(symm: Any, problem: Any, config: dict, seed: int) -> dict[int, list[Any]]:
    """What each physical work-group computes, in order: the key of each logical work-group, seen by wrapping device functions."""
    seen: dict[int, list[Any]] = {}
    low: dict[int, int] = {}

    def number(value: Any) -> int:
        return int(value.handle.data.reshape(-1)[0]) if hasattr(value, "handle") else int(value)

    def note(key: Any) -> None:
        seen.setdefault(number(tl.program_id(0)), []).append(key)

    def spy(module: Any, name: str, look: Callable) -> Callable[[], None]:
        original = getattr(module, name)

        def wrapped(*args: Any) -> Any:
            result = original(*args)
            look(args, result)
            return result

        setattr(module, name, wrapped)
        return lambda: setattr(module, name, original)

    if isinstance(problem, embedding.Problem):
        undo = [
            spy(embedding_device, "pooled_tile", lambda a, _: note((number(a[6]), number(a[5]))))
        ]  # (first bag, table)
    elif isinstance(problem, gemm.Problem):
        undo = [
            spy(gemm_device, "blocks_for", lambda a, r: low.__setitem__(number(tl.program_id(0)), number(r[4]))),
            spy(gemm_device, "tile_of", lambda a, _: note(low[number(tl.program_id(0))] + number(a[0]))),
        ]
    else:
        undo = [spy(gemv_device, "partial_tile", lambda a, _: note(number(a[2])))]
    try:
        run(symm, [(problem, config)], seed)
    finally:
        for restore in undo:
            restore()
    return seen
