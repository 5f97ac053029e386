"""A work-group: its threads in the memory model, and whoever tells what it does next (the interpreter, or a record)."""

import sys
from collections.abc import Callable
from typing import Any

import greenlet
import numpy as np

from ..memory_model import Memory, Where
from ..memory_model.sync import Engine
from .held import Held
from .ops import Op
from .record import Locate, Node, Root, state
from .source import assembly, kernel_frames, positions

WAITING, READY, SPINNING, DONE = range(4)
STATES = ("waiting for a slot", "running", "spinning", "done")


class WorkGroup:
    """One program instance of one launch.

    `start` and `advance` give its next operation, or None at its end. With a record it is walked as far as it goes; then the
    interpreter takes over in a greenlet, is fed the values so far, and what it does is recorded.

    Attributes:
        key: (rank, launch, program id); `count` operations done so far.
        lead, tile, lanes: its threads in the memory model; `threads` all of them.
        pending: the operation that it will do when it is picked.
    """

    def __init__(
        self, key: tuple[int, int, int], memory: Memory, body: Callable[[], None], root: Root | None, locate: Locate, kernel: str
    ):  # fmt: skip
        self.key, self.rank, self.kernel = key, key[0], kernel
        self.mark = key[0] << 48 | key[1] << 24 | key[2]  # of the work-group, in the digest
        self.name = f"rank {key[0]} WG {key[2]}"
        block = key
        self.lead = memory.thread(self.rank, block, "lead", self.name)
        self.tile = memory.thread(self.rank, block, "tile", self.name)
        self.lanes = memory.thread(self.rank, block, "lanes", self.name)
        self.threads = (self.lead, self.tile, self.lanes)
        self.nics: dict[int, Engine] = {}
        self.tma: Engine | None = None
        self.program_id, self.grid = (key[2], 0, 0), (1, 1, 1)
        self.state = WAITING
        self.count = 0
        self.pending: Op | None = None
        self.polls: dict[tuple, tuple[Any, Where, Op]] = {}  # reads since the last one that brought news: value, cells
        self.idle = 0
        self.waits: list[tuple[Where, Op]] = []  # what a spinning work-group reads again and again
        self.grace = 0
        self._memory, self._body, self._root, self._locate = memory, body, root, locate
        self._green: greenlet.greenlet | None = None
        self._node: Node | None = None
        self._path: list[tuple[Node, Any]] = []  # what it read so far, polls that led nowhere left out
        self._feed: list[tuple[Node, Any]] | None = None
        self._held = Held()

    # ------------------------------------------------------------------------------------------------ next operation
    def start(self) -> Op | None:
        """The first operation."""
        if self._root is not None and self._root.start is not None:
            self._node = self._root.start
            self.pending = self._node.op
        else:
            self.pending = self._resume(None)
            if self._root is not None:
                self._node = self._root.start = Node(self.pending)
        return self.pending

    def advance(self, result: np.ndarray | None) -> Op | None:
        """The operation after `result` came back for the pending one."""
        node = self._node
        if node is None:
            self.pending = self._resume(result)
            return self.pending
        key = b"" if result is None else result.tobytes()
        following = node.next.get(key)
        if following is None:
            if self._green is None:
                self._go_live()
            following = node.next[key] = self._record(result)
        if following is not node:
            self._path.append((node, result))
        if self._green is not None and any(n is not following for n in following.next.values()):
            self.kill()  # known from here on: no need of the interpreter
            self._green = None
        self._node = following
        self.pending = following.op
        return following.op

    def _go_live(self) -> None:
        """Start the interpreter and feed it the values so far, up to the pending operation."""
        self._feed, self._held = self._path[::-1], Held()
        asked = self._resume(None)
        if asked is None or not asked.same(self._node.op):
            raise AssertionError(
                f"{self.name} does not repeat itself: {asked and asked.site} instead of {self._node.op.site}"
            )

    def _record(self, result: np.ndarray | None) -> Node:
        """The node after `result`, from the interpreter. A state that was seen before leads on as it did then."""
        op = self._resume(result)
        frames = None
        if op is not None and op.scalar:
            frames = state(kernel_frames(self._green.gr_frame), self._locate)
        if frames is None:
            return Node(op)
        machine = assembly(self._green.gr_frame)
        frames += (self._held.content, None if machine is None else machine.content)
        known = self._root.states.get(frames)
        if known is None:
            known = self._root.states[frames] = Node(op)
        return known

    # ----------------------------------------------------------------------------------------------------- interpreter
    def _resume(self, result: np.ndarray | None) -> Op | None:
        """Let the interpreter run to its next request."""
        if self._green is None:
            self._green = greenlet.greenlet(self._run)
        return self._green.switch(result)

    def _run(self, _: Any) -> None:
        self._body()

    def request(self, op: Op) -> np.ndarray | None:
        """Called from within the interpreter: ask for an operation, come back with its result."""
        if self._root is None:
            return self._ask(op)
        self._held.at(positions(sys._getframe(1)))
        result = self._ask(op)
        self._held.note(result)
        return result

    def _ask(self, op: Op) -> np.ndarray | None:
        if self._feed:
            node, result = self._feed.pop()
            if not op.same(node.op):
                raise AssertionError(f"{self.name} does not repeat itself: {op.site} instead of {node.op.site}")
            return result
        return self._green.parent.switch(op)

    def kill(self) -> None:
        """Unwind the interpreter of a work-group that will not go on."""
        if self._green is not None and not self._green.dead:
            self._green.throw(greenlet.GreenletExit)

    # --------------------------------------------------------------------------------------------------------- engines
    def nic(self, peer: int) -> Engine:
        """The NIC's view of this work-group's puts to one peer: they are unordered with one another."""
        if peer not in self.nics:
            self.nics[peer] = Engine(
                self._memory, self._memory.thread(self.rank, None, "nic", f"{self.name} NIC to rank {peer}")
            )
        return self.nics[peer]

    def tma_engine(self) -> Engine:
        if self.tma is None:
            self.tma = Engine(self._memory, self._memory.thread(self.rank, None, "async", f"{self.name} TMA"))
        return self.tma
