"""Torch operations of the host programs, seen as accesses of symmetric memory by the rank's host.

A result that is read before it has arrived, or a buffer that is filled while a peer still reads it, is then a race like any other.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..memory_model import Scope, Sem, Where
from ..sites import Site, chain
from .world import Fault

if TYPE_CHECKING:
    from .engine import Run
    from .host import Host


class WatchHosts(TorchDispatchMode):
    """While entered, torch operations called by a host program on heap tensors go through the memory model."""

    def __init__(self, run: "Run"):
        super().__init__()
        self.run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        host = self.run.in_host
        if host is None or func.is_view or _only_shape(func):
            return func(*args, **kwargs)
        reads, writes = [], []
        for spec, value in zip(func._schema.arguments, args, strict=False):
            self._sort(host, spec, value, reads, writes)
        by_name = {spec.name: spec for spec in func._schema.arguments}
        for name, value in kwargs.items():
            self._sort(host, by_name.get(name), value, reads, writes)
        if not reads and not writes:
            return func(*args, **kwargs)
        name, site = f"torch {func._schema.name.removeprefix('aten::')}", _site()
        memory = self.run.memory
        for w in reads:
            memory.load(host.thread, w, np.dtype(np.uint8), Sem.PLAIN, Scope.SYS, site, name)
        before = [w.of(w.buf.bytes).copy() for w in writes]
        out = func(*args, **kwargs)
        for w, old in zip(writes, before, strict=True):
            where = slice(w.lo, w.hi) if w.idx is None else w.idx
            new = w.buf.bytes[where].copy()
            w.buf.bytes[where] = old  # the memory model does the store
            memory.store(host.thread, w, new.reshape(-1), Sem.PLAIN, Scope.SYS, site, name)
        return out

    def _sort(self, host: "Host", spec: Any, value: Any, reads: list[Where], writes: list[Where]) -> None:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0 or tensor.layout is not torch.strided:
                continue
            try:
                w = self._where(host, tensor)
            except Fault:
                continue
            changed = spec is not None and spec.alias_info is not None and spec.alias_info.is_write
            (writes if changed else reads).append(w)

    def _where(self, host: "Host", tensor: torch.Tensor) -> Where:
        """Cells of a tensor in a heap. Raises `Fault` for any other memory."""
        lo, item = tensor.data_ptr(), tensor.element_size()
        buf, offset = self.run.world.find_shared(host.rank, lo)
        cell = buf.cell
        if tensor.is_contiguous():
            return Where(buf, offset // cell, -(-(offset + tensor.numel() * item) // cell))
        places = np.zeros(1, np.int64)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            places = (places[:, None] + np.arange(size) * stride).ravel()
        idx = np.unique((offset + places * item) // cell)
        if item > cell:
            idx = np.unique((idx[:, None] + np.arange(item // cell)).ravel())
        return Where(buf, int(idx[0]), int(idx[-1]) + 1, idx)


_TORCH = str(Path(torch.__file__).parent)


def _site() -> tuple[Site, ...]:
    """Where the host program called torch."""
    return tuple(s for s in chain(limit=16) if not s[0].startswith(_TORCH))[:4]


def _only_shape(func: Any) -> bool:
    """Operations that look at a tensor's shape and type only."""
    name = func._schema.name
    return name.endswith("_like") or name.startswith(("aten::new_", "aten::detach", "aten::alias", "prim::"))
