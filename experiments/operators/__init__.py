"""What the experiments need of each operator: problems and random operands from a case, one call, and what must come out.

One adapter object an operator. Adapters import `kernels` when they are used, not before, so that a rank may put a mutated
kernel in its place first.
"""

from typing import Any, NamedTuple, Protocol

import torch

from ..cases import OPERATORS, Case
from ..errors import require

Operands = dict[str, Any]


class Expected(NamedTuple):
    """float64, one shape: the exact result, the largest allowed absolute error, the sum of absolute values of its terms."""

    exact: torch.Tensor
    bound: torch.Tensor
    magnitude: torch.Tensor


class Adapter(Protocol):
    """An operator as verification and measurement see it.

    Attributes:
        name: the operator's module in `kernels`.
        same_on_all_ranks: whether the operator promises the same bits on every rank.
        device_modules: modules with its device code (where faults are injected).
    """

    name: str
    same_on_all_ranks: bool
    device_modules: tuple[str, ...]

    def problem(self, case: Case, world_size: int, call: int = 0) -> Any:
        """The problem of call number `call`; with `changing`, the shapes differ from call to call."""

    def labels(self, case: Case) -> tuple[str, str]:
        """(strategy, transport) of a correctness case."""

    def operands(self, problem: Any, case: Case, rank: int, seed: int, device: torch.device) -> Operands:
        """Random operands of one rank; the same seed gives the same values wherever it is called."""

    def counts(self, problem: Any, case: Case) -> dict[str, int]:
        """bytes_read, bytes_sent (to other ranks) and flops of one call on the busiest rank: what the limit counts."""

    def out_shape(self, problem: Any, rank: int) -> tuple[int, ...]:
        """Shape of the result on one rank."""

    def run(self, symm: Any, problem: Any, case: Case, operands: Operands, out: torch.Tensor) -> torch.Tensor:
        """One fused call of the case's variant into symmetric `out`; the result."""

    def expected(
        self, problem: Any, case: Case, rank: int, seed: int, device: torch.device, partial: bool = False
    ) -> Expected:
        """What stands on `rank` after the operator, or (`partial`) after its compute half alone."""


def get(operator: str) -> Adapter:
    """The adapter of an operator. Raises `ExperimentError` for a name that is none."""
    require(operator in OPERATORS, "operator", operator, ", ".join(OPERATORS))
    if operator == "gemv_all_reduce":
        from .gemv import Gemv

        return Gemv()
    if operator == "embedding_all_to_all":
        from .embedding import Embedding

        return Embedding()
    from .gemm import Gemm

    return Gemm()


def generator(seed: int, rank: int, device: torch.device) -> torch.Generator:
    """A generator of its own for each (seed, rank)."""
    return torch.Generator(device=device).manual_seed(seed * 64 + rank)
