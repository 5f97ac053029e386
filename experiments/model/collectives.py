"""All-reduce as messages on the network, by rings on a torus and directly elsewhere; closed forms of all-reduce and all-to-all."""

from collections.abc import Generator

from .network import Latch, Network
from .topology import Torus


class AllReduce:
    """One all-reduce of `size` bytes on every node; each node runs `part(node)` as a process.

    On a torus: reduce-scatter along each dimension in turn, then all-gather back, half of the payload each way round the
    ring. Elsewhere: direct reduce-scatter, then direct all-gather (each node exchanges 1/N with every other).
    """

    def __init__(self, net: Network, size: float) -> None:
        self.net, self.size = net, size
        self._boxes: dict[tuple[int, int, int], Latch] = {}

    def _box(self, node: int, phase: int, step: int, n: int) -> Latch:
        key = (node, phase, step)
        if key not in self._boxes:
            self._boxes[key] = self.net.latch(n)
        return self._boxes[key]

    def _ring(self, node: int, phase: int, axis: int, size: float) -> Generator:
        torus = self.net.topology
        assert isinstance(torus, Torus)
        k = torus.dims[axis]
        peers = [torus.neighbour(node, axis, 1), torus.neighbour(node, axis, -1)]
        for step in range(k - 1):
            for peer in peers:
                self.net.send(node, peer, size / k / 2, self._box(peer, phase, step, 2))
            yield self._box(node, phase, step, 2)
            del self._boxes[node, phase, step]

    def _direct(self, node: int, phase: int) -> Generator:
        nodes = self.net.topology.nodes
        boxes = [self._box(peer, phase, 0, nodes - 1) for peer in range(nodes)]
        yield from self.net.exchange(node, self.size / nodes, 1, boxes)
        yield self._box(node, phase, 0, nodes - 1)
        del self._boxes[node, phase, 0]

    def part(self, node: int) -> Generator:
        """What one node does, from start to end."""
        torus = self.net.topology
        if not isinstance(torus, Torus):
            yield from self._direct(node, 0)
            yield from self._direct(node, 1)
            return
        size, passes = self.size, []
        for axis, k in enumerate(torus.dims):
            passes.append((axis, size))
            size /= k
        for phase, (axis, amount) in enumerate([*passes, *reversed(passes)]):
            yield from self._ring(node, phase, axis, amount)


def all_reduce_closed_form(dims: tuple[int, ...], size: float, bandwidth: float, latency: float) -> float:
    """Seconds of `AllReduce` on an idle torus: two passes of k - 1 steps a dimension, half of the payload each way."""
    total, amount = 0.0, size
    for k in dims:
        total += 2 * (k - 1) * (amount / k / 2 / bandwidth + latency)
        amount /= k
    return total


def all_to_all_bound(dims: tuple[int, ...], buffer: float, bandwidth: float) -> float:
    """Seconds no torus all-to-all of `buffer` bytes a node can beat: mean hops along the longest ring over its two ways."""
    k = max(dims)
    return buffer * (sum(min(d, k - d) for d in range(k)) / k) / 2 / bandwidth
