"""The programs that the mutant campaign attacks (`experiments/cases/subjects.yaml`): small calls of every operator, one after another.

Operands and references are made once a process, outside what is replayed: a campaign runs the same program thousands of times.
"""

import functools
import json
from dataclasses import replace
from typing import Any

import torch

from .. import operators

_Call = tuple[Any, dict[str, Any], Any]  # problem, operands, expected


@functools.cache
def _calls(operator: str, case: str, world_size: int, rank: int) -> list[_Call]:
    adapter, fields, cpu = operators.get(operator), json.loads(case), torch.device("cpu")
    calls = []
    for call in range(fields["calls"]):
        problem = adapter.problem(fields, world_size, call % fields["shapes"])
        operands = adapter.operands(problem, fields, rank, call, cpu)
        calls.append((problem, operands, adapter.expected(problem, fields, rank, call, cpu)))
    return calls


def program(symm: Any, operator: str, case: dict[str, Any]) -> float:
    """All calls of `case` on this rank, back to back; the largest error as a part of its bound.

    `case` has the fields of the operator's correctness cases, `config`, which changes the default configuration, `calls`, and
    `shapes`: as many problems take turns. Hosts meet where a problem is new; from call number `shapes` on, none does any more.
    Raises `AssertionError` for a result outside its bound.
    """
    adapter = operators.get(operator)
    default = adapter.config
    adapter.config = lambda *args: replace(default(*args), **case["config"])
    calls = _calls(operator, json.dumps(case, sort_keys=True), symm.world_size, symm.rank)
    shapes = [adapter.out_shape(problem, symm.rank) for problem, _, _ in calls]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    buffer = symm.empty(max(max(symm.exchange(size)) for size in sizes), calls[0][0].dtype, "out")
    results = []
    for (problem, operands, _), shape, size in zip(calls, shapes, sizes, strict=True):
        out = buffer[:size].view(shape)
        out.fill_(float("nan"))  # an element that nobody writes cannot pass
        results.append(adapter.run(symm, problem, case, operands, out).clone())
    worst = 0.0
    for number, (result, (_, _, expected)) in enumerate(zip(results, calls, strict=True)):
        # A rank's part of an uneven batch may be smaller than its buffer: rows behind it are nobody's.
        error = (result[: len(expected.exact)].double() - expected.exact).abs().nan_to_num(nan=float("inf"))
        part = float((error / expected.bound.clamp_min(1e-300)).max()) if error.numel() else 0.0
        assert part <= 1.0, f"call {number}: an element is {part:.3g} times its error bound away from the reference"
        worst = max(worst, part)
    return worst
