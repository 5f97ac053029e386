"""Link layer of the scale-out simulation: store-and-forward messages over FIFO links, serialisation then latency.

The same abstraction as the congestion-aware analytical backend of ASTRA-sim. One callback a hop, no process a message.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import simpy
from simpy.events import Event

from .topology import Topology

Done = Callable[[], None]


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep Python's cycle collector off: it would walk hundreds of thousands of live events, and a run makes no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Message(Event):
    """A message under way: one event, scheduled again for each hop (a fresh event a hop costs a third of the speed)."""

    def __init__(self, net: "Network", route: tuple[int, ...], size: float, done: Done) -> None:
        self.env, self.net, self.route, self.size, self.done, self.hop = net.env, net, route, size, done, 0
        self._ok, self._value = True, None
        self._each_time = [self.advance]

    def after(self, delay: float) -> None:
        """Advance in `delay` seconds."""
        self.callbacks = self._each_time
        self.env.schedule(self, delay=delay)

    def advance(self, _: object = None) -> None:
        """Take the next link, or arrive."""
        net, hop = self.net, self.hop
        if hop == len(self.route):
            net.delivered += self.size
            net.arrived += 1
            self.done()
            return
        link = self.route[hop]
        self.hop = hop + 1
        now = self.env.now
        start = net.busy[link]
        start = max(start, now)
        end = start + self.size / net.bandwidth[link]
        net.busy[link] = end
        net.bytes[link] += self.size
        self.after(end - now + net.latency)


class Network:
    """Nodes of `topology` with links of `bandwidth` bytes/s and `latency` s a hop; a message costs its sender's NIC `put_cost` s.

    Attributes:
        bandwidth: of each link; change an element before sending to model a degraded one.
        bytes: carried by each link so far.
        sent, delivered: bytes; injected, arrived: messages. Equal at the end of a run.
    """

    def __init__(
        self, env: simpy.Environment, topology: Topology, bandwidth: float, latency: float, put_cost: float = 0.0
    ) -> None:
        self.env, self.topology, self.latency, self.put_cost = env, topology, latency, put_cost
        self.bandwidth = [bandwidth] * topology.links
        self.busy = [0.0] * topology.links
        self.bytes = [0.0] * topology.links
        self.nic = [0.0] * topology.nodes
        self.sent = self.delivered = 0.0
        self.injected = self.arrived = 0
        self._routes: dict[tuple[int, int], tuple[int, ...]] = {}

    def route(self, source: int, dest: int) -> tuple[int, ...]:
        """The topology's route, remembered."""
        found = self._routes.get((source, dest))
        if found is None:
            found = self._routes[source, dest] = self.topology.route(source, dest)
        return found

    def send(self, source: int, dest: int, size: float, done: Done) -> None:
        """Send one message now; `done()` when its last byte has arrived."""
        self.sent += size
        self.injected += 1
        message = _Message(self, self.route(source, dest), size, done)
        if self.put_cost == 0.0 or source == dest:
            message.advance()
            return
        start = max(self.nic[source], self.env.now) + self.put_cost
        self.nic[source] = start
        message.after(start - self.env.now)


class Latch:
    """Counts calls; its event fires at the n-th."""

    __slots__ = ("event", "left")

    def __init__(self, env: simpy.Environment, n: int) -> None:
        self.event, self.left = env.event(), n
        if n == 0:
            self.event.succeed()

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.event.succeed()
