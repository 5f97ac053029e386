"""Who runs next, and which of the allowed values it sees: everything that a seed decides.

Personalities: uniform (a random actor, kept for a while), PCT (random priorities, lowered at few random points: Burckhardt et
al., ASPLOS 2010), round-robin, and one rank far ahead or far behind of the others.
"""

from typing import Protocol

from ..memory_model import Thread, Where
from .options import PERSONALITIES, Decisions
from .rng import Rng


class Actor(Protocol):
    """A host or a work-group. `key` is the same in every run of a program: (rank, launch, work-group)."""

    key: tuple[int, int, int]
    rank: int
    count: int


class Scheduler:
    """Picks among the actors that can run. `taken` collects the switches for a later replay."""

    def __init__(self, seed: int, world_size: int, personality: str | None, decisions: Decisions | None = None):
        self.rng = Rng(seed, 1)
        self.personality = personality or PERSONALITIES[self.rng.below(len(PERSONALITIES))]
        self.decisions = decisions
        self.taken: dict[tuple, tuple] = {}
        self.switches = 0
        self._special = self.rng.below(world_size)  # the rank that is ahead or behind
        self._keep = (0, 128, 224, 248)[self.rng.below(4)]  # of 256: how often an actor goes on
        self._change = (1 << 8, 1 << 10)[self.rng.below(2)]  # pct: one change point in so many steps
        self._quantum = (1, 2, 3, 8)[self.rng.below(4)]
        self._priority: dict[tuple, int] = {}
        self._left = 0

    def pick(self, ready: list[Actor], current: Actor | None) -> Actor:
        """One of `ready` (never empty); `current` ran last and may be among them."""
        if self.decisions is not None:
            return self._replayed(ready, current)
        if len(ready) == 1:
            return self._note(ready[0], current)
        return self._note(getattr(self, f"_{self.personality}")(ready, current), current)

    def _note(self, chosen: Actor, current: Actor | None) -> Actor:
        if chosen is not current:
            self.switches += 1
            self.taken[_place(current)] = chosen.key
        return chosen

    def _replayed(self, ready: list[Actor], current: Actor | None) -> Actor:
        wanted = self.decisions.switches.get(_place(current))
        for actor in ready:
            if actor.key == wanted:
                return self._note(actor, current)
        if current in ready:
            return current
        return self._note(min(ready, key=lambda a: a.key), current)

    def _uniform(self, ready: list[Actor], current: Actor | None) -> Actor:
        r = self.rng.next()
        if (r & 255) < self._keep and current in ready:
            return current
        return ready[(r >> 8) % len(ready)]

    def _pct(self, ready: list[Actor], current: Actor | None) -> Actor:
        priority = self._priority
        for actor in ready:
            if actor.key not in priority:
                priority[actor.key] = (1 << 32) + self.rng.below(1 << 32)
        chosen = max(ready, key=lambda a: priority[a.key])
        if self.rng.below(self._change) == 0:
            priority[chosen.key] = self.rng.below(1 << 32)  # below every priority given so far
            chosen = max(ready, key=lambda a: priority[a.key])
        return chosen

    def _round_robin(self, ready: list[Actor], current: Actor | None) -> Actor:
        if self._left > 0 and current in ready:
            self._left -= 1
            return current
        self._left = self._quantum - 1
        order = sorted(ready, key=lambda a: a.key)
        later = [a for a in order if current is not None and a.key > current.key]
        return later[0] if later else order[0]

    def _ahead(self, ready: list[Actor], current: Actor | None) -> Actor:
        mine = [a for a in ready if a.rank == self._special]
        return self._uniform(mine or ready, current)

    def _behind(self, ready: list[Actor], current: Actor | None) -> Actor:
        others = [a for a in ready if a.rank != self._special]
        return self._uniform(others or ready, current)


def _place(current: Actor | None) -> tuple:
    """Where a switch happens: after which actor's how many operations; at the start of the run nobody has run."""
    return ((-1, -1, -1), 0) if current is None else (current.key, current.count)


class Adversary:
    """The memory model's chooser: how old the values are that loads get."""

    def __init__(self, seed: int, decisions: Decisions | None = None):
        self.rng = Rng(seed, 2)
        self.decisions = decisions
        self.taken: dict[tuple, float] = {}
        self.actor: Actor | None = None
        self.eager = False  # everything visible: used to tell a hang from slowness
        self.deliver = (2, 8, 32)[self.rng.below(3)]  # of 256, late mode: a store arrives at a step
        self._fresh = (32, 96, 192)[self.rng.below(3)]  # of 256: how often the newest value is taken
        self._streak: dict[tuple, int] = {}
        self._within = (None, 0, 0)

    def _key(self) -> tuple:
        key, count, n = self._within
        if key is self.actor.key and count == self.actor.count:
            n += 1
        else:
            n = 0
        self._within = (self.actor.key, self.actor.count, n)
        return self._within

    def _decide(self, drawn: float) -> float:
        """Note a choice, or replay it."""
        key = self._key()
        if self.decisions is not None:
            drawn = self.decisions.choices.get(key, 0)
        if self.eager:
            drawn = 0
        if drawn:
            self.taken[key] = drawn
        return drawn

    def stale(self, t: Thread, w: Where, n: int) -> int:
        r = self.rng.next()
        at = (t.index, w.buf.name, w.buf.rank, w.lo)
        streak = self._streak.get(at, 0)
        fresh = (r & 255) < self._fresh or streak >= 3  # a poll sees news after a while
        choice = int(self._decide(0 if fresh else 1 + (r >> 8) % (n - 1)))
        self._streak[at] = streak + 1 if choice else 0
        return min(choice, n - 1)

    def tile(self, t: Thread, w: Where) -> float:
        r = self.rng.next()
        fresh = (r & 255) < self._fresh
        return self._decide(0 if fresh else (1.0 if r & 256 else ((r >> 9) % 7 + 1) / 8))

    def place(self, t: Thread, w: Where, n: int) -> int:
        r = self.rng.next()
        return min(int(self._decide(0 if (r & 255) >= 64 else 1 + (r >> 8) % n)), n)
