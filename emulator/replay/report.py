"""Reports that a person can read: who, on which line, what memory, which order is missing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory_model import Access, Buffer, Conflict, Message
from ..memory_model.explain import missing_order
from ..sites import of_exception

if TYPE_CHECKING:
    from .engine import Run


@dataclass(frozen=True)
class Report:
    """A finding.

    Attributes:
        kind: "race", "scope", "lanes", "never written", "address", "hang", "livelock", "error" (the program raised) or
            "result" (the program's own check failed).
        text: one or more lines for people.
        seed: the seed that shows it.
        sites: source lines involved, "file:line", the identity of the finding from run to run.
        details: the same in pieces, for JSON.
        error: the exception, for kind "error".
    """

    kind: str
    text: str
    seed: int
    sites: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} (seed {self.seed}): {self.text}"

    def alike(self, other: "Report") -> bool:
        """The same finding, maybe in another run."""
        return self.kind == other.kind and set(self.sites) == set(other.sites)


def site_text(site: Any) -> str:
    """file:line, with the device functions' callers: `shmem.py:72 <- gemv.py:140`."""
    if not isinstance(site, tuple):
        return str(site)
    places = [f"{Path(file).name}:{line}" for file, line, *_ in site]
    return " <- ".join(places) or "?"


def element(buf: Buffer, cell: int) -> str:
    """`buffer[index]` of rank r."""
    return f"`{buf.name}[{cell}]` of rank {buf.rank}"


def value_at(buf: Buffer, cell: int, raw: np.ndarray | None = None) -> str:
    """What the element holds, as its allocation's dtype."""
    data = buf.bytes[cell].copy() if raw is None else raw
    if buf.dtype == "bfloat16":
        data, kind = np.concatenate([np.zeros(2, np.uint8), data]), np.dtype(np.float32)
    else:
        try:
            kind = np.dtype(buf.dtype)
        except TypeError:
            kind = np.dtype(f"u{len(data)}")
    if len(data) % kind.itemsize:
        kind = np.dtype(np.uint8)
    shown = data.view(kind)
    return f"{shown[0]:.6g}" if kind.kind == "f" else str(shown[0])


def describe(access: Access) -> str:
    """rank 0 WG 3 store gemv.py:88."""
    return f"{access.thread.name} {access.op} {site_text(access.site)}"


def _flag(message: Message) -> str:
    return f"{element(message.where.buf, message.where.lo)} ({site_text(message.site)})"


def race_report(run: "Run", conflict: Conflict) -> Report:
    """Put a conflict into words."""
    a, b, what = conflict.earlier, conflict.later, element(conflict.buf, conflict.cell)
    why = missing_order(run.memory, conflict, _flag)
    value = value_at(conflict.buf, conflict.cell)
    if a is None:
        text = f"{describe(b)} reads {what}, which nobody has written"
    else:
        text = f"no happens-before from {describe(a)} to {describe(b)} on {what} (now {value}): {why}"
    details = {
        "buffer": conflict.buf.name, "owner": conflict.buf.rank, "index": conflict.cell, "value": value, "missing": why,
        "earlier": _side(a), "later": _side(b),
    }  # fmt: skip
    sites = tuple(site_text(x.site) for x in (a, b) if x is not None)
    return Report(conflict.kind, text, run.seed, sites, details)


def _side(access: Access | None) -> dict[str, Any] | None:
    if access is None:
        return None
    return {
        "who": access.thread.name, "rank": access.thread.rank, "thread": access.thread.role, "op": access.op,
        "site": site_text(access.site),
    }  # fmt: skip


def fault_report(run: "Run", wg: Any, op: Any) -> Report:
    """An address that the rank may not use."""
    text = f"{wg.name} {op.name} {site_text(op.site)}: {op.values}"
    return Report(
        "address", text, run.seed, (site_text(op.site),), {"who": wg.name, "rank": wg.rank, "problem": op.values}
    )


def root_cause(error: BaseException) -> BaseException:
    """The exception that the others were raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def error_report(run: "Run", actor: Any, error: BaseException) -> Report:
    """The program raised an exception of its own."""
    root = root_cause(error)
    places = of_exception(root) or of_exception(error)
    where = f" at {site_text(places[:1])}" if places else ""
    text = f"{actor.name} raised {type(root).__name__}{where}: {str(root).strip()}"
    return Report(
        "error", text, run.seed, (where.removeprefix(" at "),), {"who": actor.name, "rank": actor.rank}, error
    )
