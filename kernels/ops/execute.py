"""What an operator does in the process that launches its kernel: on CPUs one of the emulator's, elsewhere the caller's.

Plain tensors and values only, since the call may cross a process boundary: the result stands in `out`, and a user's mistake
comes back as its message.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .. import embedding_all_to_all as embedding
from .. import gemm_all_to_all as gemm
from .. import gemv_all_reduce as gemv
from ..errors import ProblemError
from ..symmetric import SymmetricMemory


def _says_what_is_wrong(function: Callable[..., None]) -> Callable[..., str | None]:
    """Return a `ProblemError`'s message instead of raising it."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> str | None:
        try:
            function(*args)
        except ProblemError as error:
            return str(error)
        return None

    return wrapped


@_says_what_is_wrong
def gemv_all_reduce(symm: SymmetricMemory, problem: gemv.Problem, out: Tensor, *operands: Any) -> None:
    """`operands`: input, weight, bias, residual."""
    input, weight, bias, residual = operands
    gemv.fused(symm, problem, weight, input, out, bias, residual)


@_says_what_is_wrong
def embedding_all_to_all(symm: SymmetricMemory, problem: embedding.Problem, out: Tensor, *operands: Any) -> None:
    """`operands`: the fields of `Tables`."""
    embedding.fused(symm, problem, embedding.Tables(*operands), out)


@_says_what_is_wrong
def gemm_all_to_all(symm: SymmetricMemory, problem: gemm.Problem, out: Tensor, *operands: Any) -> None:
    """`operands`: the fields of `Experts`."""
    gemm.fused(symm, problem, gemm.Experts(*operands), out)
