"""The `decomposed` strategy: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep
Learning Models", ASPLOS 2023.

The collective behind a computation is cut into one exchange per destination. The loop computes the chunk for the next
destination while the previous chunk is on its way: compute on the caller's stream, copies on a second one, the rank's own
chunk last. Kernels stay as they are; what is paid for the overlap is one launch and one exchange per destination.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Self

import torch

from . import collectives
from .symmetric import SymmetricMemory


class Overlap:
    """The caller's stream for computing and a second one for copies; on CPUs everything happens in order.

    Use as a context: on leaving it the caller's stream waits for the copies.
    """

    def __init__(self, symm: SymmetricMemory):
        self._symm = symm
        self._copies: torch.cuda.Stream | None = None
        if symm.device.type == "cuda":
            self._copies = symm.state.setdefault("decomposed.stream", None) or torch.cuda.Stream(symm.device)
            symm.state["decomposed.stream"] = self._copies

    def __enter__(self) -> Self:
        self._after_compute()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._copies is not None:
            torch.cuda.current_stream(self._symm.device).wait_stream(self._copies)

    def _after_compute(self) -> None:
        """Copies enqueued from now on start after all that the caller's stream has been given so far."""
        if self._copies is not None:
            self._copies.wait_stream(torch.cuda.current_stream(self._symm.device))

    def exchange(
        self,
        sent: torch.Tensor,
        hop: int,
        receive: Callable[[int], torch.Tensor],
        place: Callable[[int, torch.Tensor], None],
    ) -> None:
        """`sent` to rank + hop; what rank - hop sends goes to `receive(source)` and then to `place(source, received)`."""
        source = (self._symm.rank - hop) % self._symm.world_size
        self._after_compute()
        if self._copies is not None:
            sent.record_stream(self._copies)
        with nullcontext() if self._copies is None else torch.cuda.stream(self._copies):
            received = receive(source)
            collectives.shift(self._symm, sent, received, hop)
            place(source, received)


def all_to_all(
    symm: SymmetricMemory,
    chunk: Callable[[int], torch.Tensor],
    receive: Callable[[int], torch.Tensor],
    place: Callable[[int, torch.Tensor], None],
) -> None:
    """The loop: compute `chunk(destination)` for one destination after the other while the one before it travels.

    Args:
        chunk: launches the computation of what a destination gets and returns it (contiguous).
        receive: a contiguous tensor of the shape that a source sends.
        place: puts what a source sent, or the rank's own chunk, where it belongs.
    """
    with Overlap(symm) as overlap:
        for hop in range(1, symm.world_size):
            overlap.exchange(chunk((symm.rank + hop) % symm.world_size), hop, receive, place)
        place(symm.rank, chunk(symm.rank))


def all_gather(
    symm: SymmetricMemory,
    own: torch.Tensor,
    receive: Callable[[int], torch.Tensor],
    place: Callable[[int, torch.Tensor], None],
) -> None:
    """Every rank's `own` to every rank, by the same exchanges."""
    with Overlap(symm) as overlap:
        for hop in range(1, symm.world_size):
            overlap.exchange(own, hop, receive, place)
        place(symm.rank, own)
