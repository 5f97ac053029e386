"""Links between GPUs: bandwidth, FIFO serialisation, latency, per-put cost of a NIC. Every byte is accounted for."""

from collections.abc import Callable

import simpy
from simpy.events import Timeout

from .machine import Machine


class Fabric:
    """What `machine.fabric` says: `pairwise` (a link for each ordered pair), `switch` (an egress and an ingress port a GPU), `nic` (likewise, plus a cost a put).

    FIFO: a message takes its links in the order of the calls. Through two ports it is cut through: the second port starts no
    earlier than the first, and the message is there when the slower of them has passed its last byte.
    """

    def __init__(self, env: simpy.Environment, machine: Machine) -> None:
        self.env, self.machine = env, machine
        self.busy: dict[tuple[str, int, int], float] = {}
        self.sent = self.delivered = 0.0
        self.messages = 0
        self.used: dict[tuple[str, int, int], float] = {}
        self.log: list[tuple[int, float, float, float]] = []  # (source, start, end, bytes)

    def _ports(self, source: int, dest: int) -> tuple[tuple[str, int, int], ...]:
        if self.machine.fabric == "pairwise":
            return (("pair", source, dest),)
        return (("out", source, -1), ("in", dest, -1))

    def send(self, source: int, dest: int, size: float, done: Callable[[], None] | None = None, puts: int = 0) -> None:
        """Send `size` bytes (as `puts` puts through a NIC); `done()` when the last byte is in the peer's memory, flags not included."""
        start = end = self.env.now
        cost = puts * self.machine.put_cost
        for port in self._ports(source, dest):
            start = max(start, self.busy.get(port, 0.0))
            length = size / self.machine.link + cost
            end = max(end, start + length)
            cost = 0.0  # the sender's NIC processes puts; the receiver's only passes bytes
            self.busy[port] = start + length
            self.used[port] = self.used.get(port, 0.0) + length
        self.sent += size
        self.messages += 1
        self.log.append((source, end - size / self.machine.link, end, size))

        def arrive(_: simpy.Event) -> None:
            self.delivered += size
            if done is not None:
                done()

        Timeout(self.env, end - self.env.now).callbacks.append(arrive)

    def flag(self, arrived: Callable[[], None]) -> None:
        """Raise a flag at a peer now; `arrived()` when the peer's spin has seen it."""
        Timeout(self.env, self.machine.flag).callbacks.append(lambda _: arrived())

    def intervals(self, source: int) -> list[tuple[float, float, float]]:
        """(start, end, bytes) of everything that left `source`, as the links carried it."""
        return [(start, end, size) for who, start, end, size in self.log if who == source and size > 0]
