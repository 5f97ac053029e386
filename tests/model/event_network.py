"""The link layer one event a hop: what `experiments.model.network` must equal. Slow and plain."""

from collections.abc import Generator, Sequence

import simpy
from simpy.events import URGENT

from experiments.model.topology import Topology


class Latch(simpy.Event):
    """Fires when the last of `left` messages has arrived."""

    def __init__(self, env: simpy.Environment, left: int) -> None:
        super().__init__(env)
        self.left = left
        if left == 0:
            self.succeed()

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.succeed()


class EventNetwork:
    """The same interface as `Network`."""

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

    def latch(self, n: int) -> Latch:
        return Latch(self.env, n)

    def send(self, source: int, dest: int, size: float, done: Latch) -> None:
        self.sent += size
        self.injected += 1
        route = self.topology.route(source, dest)
        if self.put_cost == 0.0 or source == dest:
            self._after(0.0, route, 0, size, done)
            return
        self.nic[source] = start = max(self.nic[source], self.env.now) + self.put_cost
        self._after(start - self.env.now, route, 0, size, done)

    def _after(self, delay: float, route: tuple[int, ...], hop: int, size: float, done: Latch) -> None:
        """Messages come before processes whose time is equal."""
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: self._hop(route, hop, size, done))
        self.env.schedule(event, URGENT, delay)

    def _hop(self, route: tuple[int, ...], hop: int, size: float, done: Latch) -> None:
        if hop == len(route):
            self.delivered += size
            self.arrived += 1
            done.count()
            return
        link, now = route[hop], self.env.now
        self.busy[link] = end = max(self.busy[link], now) + size / self.bandwidth[link]
        self.bytes[link] += size
        self._after(end - now + self.latency, route, hop + 1, size, done)

    def exchange(
        self, node: int, size: float, chunks: int, latches: Sequence[Latch], every: float = 0.0
    ) -> Generator[simpy.Event, object, None]:
        nodes = self.topology.nodes
        for _ in range(chunks):
            for hop in range(1, nodes):
                if every:
                    yield self.env.timeout(every)
                peer = (node + hop) % nodes
                self.send(node, peer, size, latches[peer])

    def run(self) -> None:
        self.env.run()
