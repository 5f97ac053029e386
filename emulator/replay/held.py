"""Values that a kernel has read and may still hold where no local variable shows them: on Python's evaluation stacks.

In `tl.load(p) + tl.load(q)` the second load happens while the first one's value is in no variable; so is the bound of
`range(tl.load(n))`. What a frame read at instruction i may be on its stack at later instructions of the same expression, and in
the loop over it.
"""

import dis
import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy as np

Position = tuple[Any, int]  # code, instruction within it


class Held:
    """What a work-group read, by frame and instruction.

    Call `at(positions)`, where it stands, outermost frame first, before each operation and `note(result)` after it. `content` is
    all that may be on the stacks at the last `at`, hashable.
    """

    def __init__(self) -> None:
        self._positions: list[Position] = []
        self._levels: list[dict[int, Any]] = []  # a frame each: instruction -> what it, or the call that it made, read

    def at(self, positions: Sequence[Position]) -> None:
        """Frames that have ended are folded into the call that made them; what is behind a frame's instruction is gone."""
        old, same = self._positions, 0
        while same < min(len(old), len(positions)) and old[same] == positions[same]:
            same += 1
        while len(self._levels) > same + 1:
            inner = self._levels.pop()
            self._levels[-1][old[len(self._levels) - 1][1]] = _content(inner)
        if len(self._levels) > same and (same == len(positions) or old[same][0] is not positions[same][0]):
            self._levels.pop()
        self._levels += [{} for _ in range(len(positions) - len(self._levels))]
        for (_, here), level in zip(positions, self._levels, strict=True):
            for instruction in [i for i in level if i >= here]:
                del level[instruction]
        self._positions = list(positions)

    def note(self, result: np.ndarray | None) -> None:
        if result is not None and self._levels:
            self._levels[-1][self._positions[-1][1]] = hashlib.blake2b(result.tobytes(), digest_size=12).digest()

    @property
    def content(self) -> tuple:
        return tuple(
            _content({i: value for i, value in level.items() if any(i in span for span in spans(*position))})
            for position, level in zip(self._positions, self._levels, strict=True)
        )


def _content(level: dict[int, Any]) -> tuple:
    return tuple(sorted(level.items()))


@cache
def spans(code: CodeType | str, here: int) -> tuple[range, ...]:
    """Instructions whose results may be on the stack at instruction `here`, the call under way: all earlier ones if it is not known.

    Nothing is on the stack where it is as deep as there are loops around; of these it holds the iterators.
    """
    depths = _depths(code) if isinstance(code, CodeType) else {}
    if here not in depths:
        return (range(here),)
    instructions = list(dis.get_instructions(code))
    found, at = [], here
    loops = [(i.offset, i.argval) for i in instructions if i.opname == "FOR_ITER"]
    while True:
        around = [start for start, end in loops if start < at < end]
        begin = max((o for o, depth in depths.items() if o <= at and depth == len(around)), default=0)
        found.append(range(begin, at))
        if not around:
            return tuple(found)
        at = max(around)  # the expression that made the innermost loop's iterator ends here


@cache
def _depths(code: CodeType) -> dict[int, int]:
    """Depth of the stack before each instruction that can be reached without an exception; nothing for code that is unlike a kernel's."""
    instructions = list(dis.get_instructions(code))
    follows = {a.offset: b.offset for a, b in pairwise(instructions)}
    by_offset = {i.offset: i for i in instructions}
    depths, todo = {}, [(0, 0)]
    while todo:
        offset, depth = todo.pop()
        if offset in depths:
            if depths[offset] != depth:
                return {}
            continue
        depths[offset] = depth
        i = by_offset[offset]
        argument = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
        jumps = i.opcode in dis.hasjrel or i.opcode in dis.hasjabs
        if jumps:
            todo.append((i.argval, depth + dis.stack_effect(i.opcode, argument, jump=True)))
        always = jumps and "IF" not in i.opname and i.opname not in ("FOR_ITER", "SEND")
        if (
            not always
            and i.opname not in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
            and offset in follows
        ):
            todo.append((follows[offset], depth + dis.stack_effect(i.opcode, argument, jump=False)))
    return depths if min(depths.values()) >= 0 else {}
