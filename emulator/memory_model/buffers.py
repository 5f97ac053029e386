"""Buffers, the messages stored into them, and which elements an access touches."""

import numpy as np

from .order import Record, Scope, Thread


class Where:
    """The cells of one access: [lo, hi) of `buf`, or the cells `idx` within it.

    `key` says which lane touches which address: two accesses of a work-group with equal keys are done by the same threads.
    """

    __slots__ = ("buf", "hi", "idx", "key", "lo", "n")

    def __init__(self, buf: "Buffer", lo: int, hi: int, idx: np.ndarray | None = None, key: object = None):
        self.buf, self.lo, self.hi, self.idx, self.key = buf, lo, hi, idx, key
        self.n = hi - lo if idx is None else len(idx)

    def of(self, cells: np.ndarray) -> np.ndarray:
        """The entries of a per-cell array of the buffer (a view if contiguous)."""
        return cells[self.lo : self.hi] if self.idx is None else cells[self.idx]

    def cells(self) -> np.ndarray:
        return np.arange(self.lo, self.hi) if self.idx is None else self.idx


class Message:
    """One store: who, when, where, and what it replaced. `prev` and `old` are per cell of `where` (a scalar if uniform)."""

    __slots__ = (
        "agent",
        "also",
        "clock",
        "id",
        "old",
        "op",
        "prev",
        "reach",
        "records",
        "rmw",
        "scope",
        "site",
        "strong",
        "thread",
        "time",
        "where",
    )  # fmt: skip

    def __init__(
        self, mid: int, t: Thread, where: Where, strong: bool, rmw: bool, scope: Scope, time: int, site, op: str
    ):
        self.id, self.thread, self.agent, self.clock, self.where = mid, t, t.index, t.now, where
        self.strong, self.rmw, self.scope, self.time, self.site, self.op = strong, rmw, scope, time, site, op
        self.prev: int | np.ndarray = 0
        self.old: np.ndarray | None = None  # uint8 [cells, bytes per cell]
        self.records: tuple[Record, ...] = ()
        self.also: tuple[Message, ...] = ()  # strong writes before it that its writer did not know
        self.reach = 0  # late-stores-only mode: 0 nobody else, 1 its rank, 2 everybody

    def before(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ids of the replaced messages, replaced bytes) at `cells`, all of which this message covers."""
        if self.where.idx is None:
            at = cells - self.where.lo
        else:
            order = np.argsort(self.where.idx, kind="stable")
            at = order[np.searchsorted(self.where.idx, cells, sorter=order)]
        prev = np.full(len(cells), self.prev) if isinstance(self.prev, int) else self.prev[at]
        return prev, self.old[at]


class Buffer:
    """A named piece of memory with one cell per element.

    Attributes:
        name, rank: for reports and scopes: whose memory it is.
        mem: uint8 [bytes], the newest value of every byte.
        cell: bytes per cell.
        last: int32 [cells], id of the newest message, 0 where nobody has stored.
        reads: int32 [cells], id of the set of reads since then.
        shared: False for memory that only one rank can reach.
        dtype: name of the elements' type, for reports.
        poison: whether a plain load of memory that nobody has written is reported.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        mem: np.ndarray,
        cell: int,
        *,
        shared: bool = True,
        poison: bool = False,
        dtype: str = "",
    ):
        self.name, self.rank, self.mem, self.cell, self.shared, self.poison = name, rank, mem, cell, shared, poison
        self.n = len(mem) // cell
        self.dtype = dtype
        self._typed: dict = {}
        self.reset()

    def reset(self) -> None:
        """Forget all accesses (the memory's contents stay)."""
        self.last = np.zeros(self.n, np.int32)
        self.reads = np.zeros(self.n, np.int32)
        self.bytes = self.mem[: self.n * self.cell].reshape(self.n, self.cell)
        self.written = False

    def move(self, mem: np.ndarray) -> None:
        """The same buffer of another run lies elsewhere."""
        self.mem = mem
        self._typed = {}
        self.reset()

    def typed(self, dtype: np.dtype) -> np.ndarray:
        """The whole memory as elements of `dtype`."""
        view = self._typed.get(dtype)
        if view is None:
            view = self._typed[dtype] = self.mem[: len(self.mem) // dtype.itemsize * dtype.itemsize].view(dtype)
        return view

    def where(self, byte_lo: int, itemsize: int, count: int = 1, key: object = None) -> Where:
        """A contiguous access of `count` elements of `itemsize` bytes."""
        return Where(self, byte_lo // self.cell, -(-(byte_lo + count * itemsize) // self.cell), None, key)
