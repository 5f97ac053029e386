"""Link layer of the scale-out simulation: store-and-forward messages over FIFO links, serialisation then latency.

The same abstraction as the congestion-aware analytical backend of ASTRA-sim. Nodes are SimPy processes; messages are not:
a Python event a hop costs 4 us, and 16 us once a million messages are under way. They advance in windows of time instead,
all of a window by a few numpy operations. A window ends

* one hop's least time after its first event: (smallest message) / bandwidth + latency. Nothing in it causes anything else in it;
* with the next event of a process, and with the first arrival that completes what a process waits for.

Events of a window happen in the order of time; of equal time in the order in which they were caused, processes last. So every
message takes its links as in a simulation event by event (`tests/model/event_network.py`; the tests hold this one to it).
"""

import gc
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from math import inf

import numpy as np
import simpy

from . import routes
from .pending import Pending
from .topology import Topology


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep Python's cycle collector off: it would walk every live event again and again, and a run makes no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Latch(simpy.Event):
    """An event that fires when the last of `n` messages has arrived (at once for none)."""

    def __init__(self, env: simpy.Environment, number: int, n: int) -> None:
        super().__init__(env)
        self.number = number
        if n == 0:
            self.succeed()

    def fire(self, time: float) -> None:
        """Happen at `time`, now or later."""
        self._ok, self._value = True, None
        self.env.schedule(self, delay=time - self.env.now)


class Network:
    """Nodes of `topology` with links of `bandwidth` bytes/s and `latency` s a hop; a message costs its sender's NIC `put_cost` s.

    `run()` takes the place of `env.run()`: it runs processes and messages in the order of time.

    Attributes:
        bandwidth: of each link; change an element before sending to model a degraded one.
        bytes: carried by each link so far.
        sent, delivered: bytes; injected, arrived: messages. Equal at the end of a run.
    """

    def __init__(
        self, env: simpy.Environment, topology: Topology, bandwidth: float, latency: float, put_cost: float = 0.0
    ) -> None:
        self.env, self.topology, self.latency, self.put_cost = env, topology, latency, put_cost
        self.bandwidth = np.full(topology.links, bandwidth)
        self.busy = np.zeros(topology.links)
        self.bytes = np.zeros(topology.links)
        self.nic = [0.0] * topology.nodes
        self.sent = self.delivered = 0.0
        self.injected = self.arrived = 0
        table = routes.table(topology)
        self._routes, self._longest = table.ravel(), table.shape[1]
        # Of each message: place in `_routes` of its next link, bytes, number of the latch that counts it.
        self._at = np.empty(0, dtype=np.int64)
        self._size = np.empty(0)
        self._latch = np.empty(0, dtype=np.int32)
        self._smallest = inf
        self._latches: dict[int, Latch] = {}
        self._left = np.zeros(1024, dtype=np.int64)  # of each latch: messages still to come
        self._made = 0
        self._pool = Pending()
        self._fresh: list[tuple[float, int, float, int]] = []  # sent one by one since the last window
        self._first_fresh = inf

    def latch(self, n: int) -> Latch:
        """What counts `n` messages."""
        made = Latch(self.env, self._made, n)
        if self._made == len(self._left):
            self._left = np.concatenate([self._left, np.zeros_like(self._left)])
        self._left[self._made] = n
        self._latches[self._made] = made
        self._made += 1
        return made

    def send(self, source: int, dest: int, size: float, done: Latch) -> None:
        """Send one message now; `done` counts it when its last byte has arrived."""
        now = time = self.env.now
        if self.put_cost != 0.0 and source != dest:
            self.nic[source] = start = max(self.nic[source], now) + self.put_cost
            time = now + (start - now)
        self._fresh.append((time, (source * self.topology.nodes + dest) * self._longest, size, done.number))
        self._first_fresh = min(self._first_fresh, time)

    def exchange(
        self, node: int, size: float, chunks: int, latches: Sequence[Latch], every: float = 0.0
    ) -> Generator[simpy.Event, object, None]:
        """A node's part of an all-to-all, as (a part of) its process: `chunks` rounds of a message of `size` to each other node.

        The next node comes first; `latches[j]` counts what arrives at j. `every`: seconds of work before each message (0:
        all are sent now). The node sends nothing else until the process goes on, right after the last message.
        """
        nodes, now = self.topology.nodes, self.env.now
        peers = np.tile((node + np.arange(1, nodes)) % nodes, chunks)
        # Accumulated one by one, as a process that waits `every` again and again would.
        sent_at = np.add.accumulate(np.concatenate([[now], np.full(len(peers), every)]))[1:]
        times = sent_at
        if self.put_cost != 0.0:
            if every == 0.0:
                start = max(self.nic[node], now)
                leaves = np.add.accumulate(np.concatenate([[start], np.full(len(peers), self.put_cost)]))[1:]
            else:
                leaves, free = np.empty_like(sent_at), self.nic[node]
                for i, t in enumerate(sent_at.tolist()):
                    leaves[i] = free = max(free, t) + self.put_cost
            self.nic[node] = float(leaves[-1])
            times = sent_at + (leaves - sent_at)
        numbers = np.array([latch.number for latch in latches], dtype=np.int32)
        self._collect()
        self._inject(times, (node * nodes + peers) * self._longest, np.full(len(peers), size), numbers[peers])
        if every:
            yield self.env.timeout(float(sent_at[-1]) - now)

    def _collect(self) -> None:
        """Put under way what was sent one by one."""
        if self._fresh:
            times, at, sizes, numbers = zip(*self._fresh, strict=True)
            self._fresh, self._first_fresh = [], inf
            self._inject(np.array(times), np.array(at), np.array(sizes), np.array(numbers, dtype=np.int32))

    def _inject(self, times: np.ndarray, at: np.ndarray, sizes: np.ndarray, latches: np.ndarray) -> None:
        if self.injected == self.arrived:
            self._smallest = inf
        first, last = self.injected, self.injected + len(times)
        if last > len(self._at):
            room = max(last, 2 * len(self._at)) - len(self._at)
            self._at, self._size, self._latch = (
                np.concatenate([old, np.empty(room, dtype=old.dtype)]) for old in (self._at, self._size, self._latch)
            )
        self._at[first:last], self._size[first:last], self._latch[first:last] = at, sizes, latches
        self.injected = last
        self.sent += float(sizes.sum())
        self._smallest = min(self._smallest, float(sizes.min()))
        self._pool.insert(times, np.arange(first, last, dtype=np.int32), self._lookahead())

    def _lookahead(self) -> float:
        """Seconds that any message under way needs for a hop at least."""
        return self._smallest / float(self.bandwidth.max()) + self.latency

    def run(self) -> None:
        """Until nothing is under way and no process has anything to do."""
        env, pool = self.env, self._pool
        while True:
            process, message = env.peek(), min(pool.first, self._first_fresh)
            if message <= process:
                if message == inf:
                    return
                self._collect()
                self._window(process)
            else:
                env.step()

    def _window(self, process: float) -> None:
        """Advance the messages of one window by a hop each; `process`: time of the next event of a process."""
        times, messages = self._pool.until(self._pool.first + self._lookahead(), process)
        links = self._routes[self._at[messages]]
        there = np.flatnonzero(links < 0)
        if there.size:
            upto = self._arrive(times, messages, there)
            if upto < len(times):
                self._pool.put_back(times[upto:], messages[upto:])
                times, messages, links = times[:upto], messages[:upto], links[:upto]
        moving = np.flatnonzero(links >= 0)
        if moving.size:
            times, messages = times[moving], messages[moving]
            ends = self._serve(times, self._size[messages], links[moving])
            self._at[messages] += 1
            self._pool.insert(times + (ends - times + self.latency), messages, self._lookahead())

    def _arrive(self, times: np.ndarray, messages: np.ndarray, there: np.ndarray) -> int:
        """Count what has arrived (positions `there`); returns how many of the window's events may happen."""
        upto = len(times)
        while True:
            numbers = self._latch[messages[there]]
            found, back, counts = np.unique(numbers[::-1], return_index=True, return_counts=True)
            full = np.flatnonzero(self._left[found] == counts)
            last = there[len(there) - 1 - back[full]]  # position of each full latch's last message
            if not full.size:
                break
            cut = int(np.searchsorted(times, times[last.min()], side="right"))
            if cut >= upto:
                break
            upto, there = cut, there[there < cut]
        self._left[found] -= counts
        for position, number in sorted(zip(last.tolist(), found[full].tolist(), strict=True)):
            self._latches.pop(number).fire(float(times[position]))
        self.arrived += len(there)
        self.delivered += float(self._size[messages[there]].sum())
        return upto

    def _serve(self, times: np.ndarray, sizes: np.ndarray, links: np.ndarray) -> np.ndarray:
        """When each message, in the order of the events, has passed its link."""
        by_link = np.argsort(links, kind="stable")
        links, times, sizes = links[by_link], times[by_link], sizes[by_link]
        takes = sizes / self.bandwidth[links]
        firsts = np.flatnonzero(np.concatenate([[True], links[1:] != links[:-1]]))
        counts = np.diff(firsts, append=len(links))
        ends = np.empty_like(times)
        for turn in range(int(counts.max())):
            now = firsts[counts > turn] + turn  # the next message of each link that has one
            link = links[now]
            self.busy[link] = ends[now] = np.maximum(self.busy[link], times[now]) + takes[now]
            self.bytes[link] += sizes[now]
        found = np.empty_like(ends)
        found[by_link] = ends
        return found
