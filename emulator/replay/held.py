"""Values that a kernel has read and may still hold where no local variable shows them: on Python's evaluation stacks.

In `tl.load(p) + tl.load(q)` the second load happens while the first one's value is in no variable; so is the bound of
`range(tl.load(n))`. What a frame read at instruction i may be on its stack at later instructions, and no more once it is at i or
before it again.
"""

import hashlib
from collections.abc import Sequence
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
        return tuple(map(_content, self._levels))


def _content(level: dict[int, Any]) -> tuple:
    return tuple(sorted(level.items()))
