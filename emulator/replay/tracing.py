"""The last operations of a run, one line each."""

from typing import TYPE_CHECKING

import numpy as np

from . import ops
from .report import element, site_text

if TYPE_CHECKING:
    from .engine import Run


def trace_lines(run: "Run") -> list[str]:
    """`rank 0 WG 1  load `flags[3]` of rank 0 -> 1  k.py:20`."""
    lines = []
    for wg, op, result in run.trace:
        where = element(op.where.buf, op.where.lo) if op.where is not None else ""
        if op.where is not None and op.where.n > 1:
            where = where.replace("]", f" .. {op.where.hi - 1}]", 1)
        value = ""
        if op.scalar and result is not None:
            value = f" -> {_short(result)}"
        elif op.kind == ops.STORE:
            value = f" = {_short(op.values)}"
        lines.append(f"{wg.name:<14} {op.name:<14} {where}{value}  {site_text(op.site)}")
    return lines


def _short(values: np.ndarray) -> str:
    flat = values.reshape(-1)
    return str(flat[0]) if len(flat) == 1 else f"{flat[0]} .. {flat[-1]}"
