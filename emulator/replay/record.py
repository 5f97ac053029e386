"""What work-groups did after which values: a work-group is a deterministic function of the values it reads.

A `Node` is an operation that some work-group asked for; `next` leads on by the bytes of its result. Two requests are one node
when the whole state of the work-group is equal: same position in every frame of the kernel and its device functions, same local
variables, same values read that may be on evaluation stacks (`held`), same registers of inline assembly. That turns a polling loop, however often it polled, into one node.
"""

from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import numpy as np
import triton.language as tl

from .ops import Op


class Node:
    """An operation, or the end (`op` None)."""

    __slots__ = ("next", "op")
    made = 0

    def __init__(self, op: Op | None):
        Node.made += 1
        self.op = op
        self.next: dict[bytes, Node] = {}


class Root:
    """All that is known of one work-group of one launch with one set of arguments."""

    __slots__ = ("start", "states")

    def __init__(self) -> None:
        self.start: Node | None = None
        self.states: dict[tuple, Node] = {}


class Records:
    """Records of all work-groups of a program, kept from run to run; bounded, since broken kernels read ever new values."""

    def __init__(self, limit: int = 200_000):
        self._roots: dict[tuple, Root] = {}
        self._limit = limit

    def root(self, identity: tuple) -> Root:
        """The record of one work-group of a launch with these arguments."""
        root = self._roots.get(identity)
        if root is None:
            root = self._roots[identity] = Root()
        return root

    def trim(self) -> None:
        """Between runs: start again if there are too many nodes."""
        if Node.made > self._limit:
            self.clear()

    def clear(self) -> None:
        self._roots.clear()
        Node.made = 0


Locate = Callable[[int], tuple[int, int]]  # address -> (its buffer, the buffer's address)


def _content(value: Any, locate: Locate) -> Any:
    """A hashable that is equal for equal values, or None if that cannot be told. Pointers are relative to their buffers."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic, type)):
        return (type(value).__name__, value)
    data = getattr(getattr(value, "handle", None), "data", None)
    if isinstance(data, np.ndarray):
        if data.dtype == np.uint64 and data.size and isinstance(value.dtype.scalar, tl.pointer_type):
            buf, base = locate(int(data.min()))
            return (buf, data.shape, (data - np.uint64(base)).tobytes(), str(value.dtype))
        return (data.dtype.str, data.shape, data.tobytes(), str(getattr(value, "dtype", "")))
    if isinstance(value, tuple):
        parts = tuple(_content(v, locate) for v in value)
        return None if None in parts else parts
    if type(value).__name__ == "constexpr":
        return _content(value.value, locate)
    if callable(value) or type(value).__name__ in ("dtype", "pointer_type", "block_type", "module"):
        return ("object", id(value)) if callable(value) else (type(value).__name__, str(value))
    return None


def state(frames: Iterable[FrameType], locate: Locate) -> tuple | None:
    """The whole state of a work-group that stands in `frames`, or None if it cannot be compared."""
    found = []
    for frame in frames:
        names = []
        for name, value in frame.f_locals.items():
            content = _content(value, locate)
            if content is None:
                return None
            names.append((name, content))
        found.append((id(frame.f_code), frame.f_lasti, tuple(names)))
    return tuple(found)
