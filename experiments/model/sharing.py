"""Processor sharing: a capacity (memory bandwidth, math rate) that everybody who is being served gets an equal part of."""

import heapq
from collections.abc import Callable
from itertools import count

import simpy
from simpy.events import Timeout


class SharedRate:
    """`capacity` units/s, shared equally by all requests under way, none of which gets more than `cap` units/s.

    A request may stand for `weight` equal ones that start together (a class of work-groups in step): it then takes `weight`
    shares and is done when each of the equals has its `amount`. Kept in virtual time v, the units that a request present
    since the start would have got: dv/dt = min(cap, capacity / weights), so a request of `amount` ends at v + amount and only
    the earliest end needs a timer, however many requests there are.
    """

    def __init__(self, env: simpy.Environment, capacity: float, cap: float = float("inf")) -> None:
        self.env, self.capacity, self.cap = env, capacity, cap
        self.served = 0.0  # units, for conservation
        self._v = self._since = 0.0
        self._weights = 0.0
        self._rate = 0.0  # dv/dt since `_since`
        self._ends: list[tuple[float, int, float, Callable[[], None] | None]] = []
        self._number = count()
        self._timer = 0

    def request(self, amount: float, weight: float = 1.0, done: Callable[[], None] | None = None) -> None:
        """Ask for `amount` units for each of `weight` equals; `done()` is called when they have been served."""
        if amount <= 0:
            if done is not None:
                done()
            return
        now = self.env.now
        self._v += (now - self._since) * self._rate
        self._since = now
        self.served += amount * weight
        self._weights += weight
        heapq.heappush(self._ends, (self._v + amount, next(self._number), weight, done))
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the earliest end; older timers find that their number has passed and do nothing."""
        self._timer += 1
        share = self.capacity / self._weights
        self._rate = rate = min(self.cap, share)
        wait = (self._ends[0][0] - self._v) / rate
        Timeout(self.env, wait if wait > 0 else 0.0, self._timer).callbacks.append(self._fire)

    def _fire(self, event: simpy.Event) -> None:
        if event.value != self._timer:
            return
        ends = self._ends
        # The end that this timer was set for is due whatever rounding says; so are those within rounding of it.
        self._since, self._v = self.env.now, ends[0][0]
        due = self._v * (1 + 1e-12) + 1e-9
        finished = []
        while ends and ends[0][0] <= due:
            _, _, weight, done = heapq.heappop(ends)
            self._weights -= weight
            if done is not None:
                finished.append(done)
        if ends:
            self._arm()
        else:
            self._weights = self._v = self._rate = 0.0
        for done in finished:
            done()
