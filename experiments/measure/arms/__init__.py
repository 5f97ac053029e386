"""The arms: everything that computes one case's result, fused or not, each under a name of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ...cases import Case


class Unavailable(Exception):
    """An arm that cannot run here; the text says why and becomes the row's reason."""


def with_config(call: Callable[[int], torch.Tensor], config: Any) -> Callable[[int], torch.Tensor]:
    """`call`, with the launch configuration written on it for the record."""
    call.config = config  # type: ignore[attr-defined]
    return call


@dataclass(frozen=True)
class Arm:
    """One way to get a result.

    Attributes:
        name: unique within an operator, `compute-part+collective` for those in two steps.
        strategy: compute, bulk, fused, staged, decomposed, push.
        face: where the result ends: "out" (the caller's symmetric tensor, zero-copy), "owned" (a fresh copy), "none" (no
            communication, or a buffer of the arm's own).
        make: called once, on every rank alike; returns `call(slot) -> result on this rank`. Raises `Unavailable`.
        stage: "partial" (this rank's product alone) or "result" (after communication).
        roundings: times a value is rounded to the dtype on its way beyond the fused kernel's single time; widens the bound.
        eager: whether it is timed outside of graphs too.
        setting: in a study, the parameter that this arm varies and its value.
        view: what turns the result into the layout of the reference, for the check only; never timed.
    """

    name: str
    strategy: str
    face: str
    make: Callable[[], Callable[[int], torch.Tensor]]
    stage: str = "result"
    roundings: int = 0
    eager: bool = True
    view: Callable[[torch.Tensor], torch.Tensor] = lambda result: result
    setting: dict[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """What the arms of one case share on one rank.

    Attributes:
        symm: symmetric memory. case: the row. problem: the operator's problem. slots: operands, one set a slot.
        memo: results of things that several arms need once.
    """

    symm: Any
    adapter: Any
    case: Case
    problem: Any
    slots: list[dict[str, Any]]
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def world(self) -> int:
        return self.problem.world_size

    @property
    def group(self) -> Any:
        """The process group. Raises `Unavailable` for a single rank."""
        if getattr(self.symm, "group", None) is None:
            raise Unavailable("one rank has nobody to communicate with")
        return self.symm.group

    def symmetric(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A symmetric tensor under a name, kept from case to case and grown when it is too small (heaps only grow)."""
        held = self.symm.state.setdefault("experiments.measure", {})
        size = torch.Size(shape).numel() * dtype.itemsize
        if name not in held or held[name].numel() < size:
            held[name] = self.symm.empty(size, torch.uint8, f"measure.{name}")
        return held[name][:size].view(dtype).view(shape)

    def library_symmetric(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor that torch's own symmetric-memory collectives accept."""
        import torch.distributed._symmetric_memory as symm_mem

        held = self.symm.state.setdefault("experiments.library", {})
        size = torch.Size(shape).numel() * dtype.itemsize
        group = self.group
        if name not in held or held[name].numel() < size:
            held[name] = symm_mem.empty(size, dtype=torch.uint8, device=self.symm.device)
            symm_mem.rendezvous(held[name], group)
        return held[name][:size].view(dtype).view(shape)


def of(bench: Bench) -> list[Arm]:
    """All arms of the bench's operator, whether they can run here or not."""
    from . import embedding, gemv

    makers = {"gemv_all_reduce": gemv.arms, "embedding_all_to_all": embedding.arms}
    if bench.adapter.name not in makers:
        from . import gemm

        return gemm.arms(bench)
    return makers[bench.adapter.name](bench)
