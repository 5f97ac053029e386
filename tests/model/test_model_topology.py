"""Routes and the link layer: closed forms, bounds, conservation."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
import simpy

from experiments.model import topology
from experiments.model.collectives import AllReduce, all_reduce_closed_form, all_to_all_bound
from experiments.model.errors import ModelError
from experiments.model.network import Network
from experiments.model.topology import Torus

BANDWIDTH, LATENCY = 25e9, 0.7e-6


def _network(t: topology.Topology, put_cost: float = 0.0) -> tuple[simpy.Environment, Network]:
    env = simpy.Environment()
    return env, Network(env, t, BANDWIDTH, LATENCY, put_cost)


def _send(net: Network, source: int, dest: int, size: float, done: Callable[[], None]) -> None:
    """One message; `done()` on its arrival."""
    latch = net.latch(1)
    latch.callbacks.append(lambda _: done())
    net.send(source, dest, size, latch)


def _all_to_all(t: topology.Topology, buffer: float, chunks: int) -> tuple[float, Network]:
    env, net = _network(t)
    latches = [net.latch((t.nodes - 1) * chunks) for _ in range(t.nodes)]
    for node in range(t.nodes):
        env.process(net.exchange(node, buffer / t.nodes / chunks, chunks, latches))
    net.run()
    assert all(latch.processed for latch in latches)
    return env.now, net


@pytest.mark.parametrize("dims", [(4, 4), (4, 8), (2, 4), (4, 4, 4), (2, 4, 4)])
def test_torus_routes_are_minimal_and_connected(dims: tuple[int, ...]) -> None:
    torus = Torus(dims)
    for source in range(torus.nodes):
        for dest in range(torus.nodes):
            node = source
            for link in torus.route(source, dest):
                owner, axis, down = link // 2 // len(dims), link // 2 % len(dims), link % 2
                assert owner == node
                node = torus.neighbour(node, axis, -1 if down else 1)
            assert node == dest
            offsets = zip(torus.coordinates(source), torus.coordinates(dest), dims, strict=True)
            assert len(torus.route(source, dest)) == sum(min((b - a) % k, (a - b) % k) for a, b, k in offsets)


@pytest.mark.parametrize("kind", ["fat_tree", "dragonfly"])
@pytest.mark.parametrize("nodes", [16, 64, 128])
def test_switched_routes_start_and_end_at_the_nodes(kind: str, nodes: int) -> None:
    t = topology.make(kind, nodes)
    longest = {"fat_tree": 4, "dragonfly": 5}[kind]
    for source in range(nodes):
        assert t.route(source, source) == ()
        for dest in range(nodes):
            route = t.route(source, dest)
            if source != dest:
                assert route[0] == source
                assert route[-1] == nodes + dest
                assert len(route) <= longest
                assert len(set(route)) == len(route)
                assert all(0 <= link < t.links for link in route)


def test_fat_tree_has_full_bisection() -> None:
    t = topology.make("fat_tree", 64)
    load = Counter(link for s in range(64) for d in range(64) for link in t.route(s, d))
    assert max(load.values()) == 63  # no link carries more than a node's own


@pytest.mark.parametrize("hops", [1, 3, 7])
def test_one_message_is_alpha_beta_a_hop(hops: int) -> None:
    env, net = _network(Torus((16, 16)))
    done = []
    _send(net, 0, hops, 1e6, lambda: done.append(env.now))
    net.run()
    assert done == [pytest.approx(hops * (1e6 / BANDWIDTH + LATENCY), rel=1e-12)]


def test_a_put_costs_its_nic_and_messages_queue_there() -> None:
    env, net = _network(Torus((4, 4)), put_cost=1e-6)
    done = []
    for _ in range(3):
        _send(net, 0, 1, 0.0, lambda: done.append(env.now))
    net.run()
    assert done == pytest.approx([1e-6 * n + LATENCY for n in (1, 2, 3)])


def test_a_link_is_first_in_first_out() -> None:
    env, net = _network(Torus((4, 4)))
    done = []
    for name, size in (("large", 1e6), ("small", 1e3)):
        _send(net, 0, 1, size, lambda name=name: done.append((name, env.now)))
    net.run()
    assert [name for name, _ in done] == ["large", "small"]
    assert done[1][1] == pytest.approx(1.001e6 / BANDWIDTH + LATENCY)


@pytest.mark.parametrize("dims", [(4, 4), (4, 8), (8, 8), (4, 4, 4)])
def test_all_reduce_is_its_closed_form(dims: tuple[int, ...]) -> None:
    torus, size = Torus(dims), 64e6
    env, net = _network(torus)
    reduce = AllReduce(net, size)
    for node in range(torus.nodes):
        env.process(reduce.part(node))
    net.run()
    n = torus.nodes
    assert env.now == pytest.approx(all_reduce_closed_form(dims, size, BANDWIDTH, LATENCY), rel=1e-9)
    assert net.delivered / n == pytest.approx(2 * (n - 1) / n * size, rel=1e-9)
    assert not reduce._boxes


def test_direct_all_reduce_moves_what_it_must() -> None:
    t = topology.make("fat_tree", 16)
    env, net = _network(t)
    reduce = AllReduce(net, 16e6)
    for node in range(16):
        env.process(reduce.part(node))
    net.run()
    assert net.delivered / 16 == pytest.approx(2 * 15 / 16 * 16e6)
    assert env.now >= 2 * 15 / 16 * 16e6 / BANDWIDTH


@pytest.mark.parametrize(
    ("dims", "chunks", "slack"), [((4, 4), 8, 1.02), ((4, 8), 8, 1.02), ((8, 8), 4, 1.01), ((4, 4, 4), 8, 1.15)]
)
def test_all_to_all_reaches_its_bound(dims: tuple[int, ...], chunks: int, slack: float) -> None:
    buffer = 64e6
    torus = Torus(dims)
    time, net = _all_to_all(torus, buffer, chunks)
    bound = all_to_all_bound(dims, buffer, BANDWIDTH)
    assert bound == pytest.approx(buffer * max(dims) / 8 / BANDWIDTH)
    assert bound <= time <= bound * slack
    assert net.injected == net.arrived
    assert net.sent == pytest.approx(net.delivered)
    # Byte-hops, and every link of an axis alike.
    assert sum(net.bytes) == pytest.approx(torus.nodes * buffer * sum(dims) / 4, rel=1e-9)
    per_axis = [[b for link, b in enumerate(net.bytes) if link // 2 % len(dims) == axis] for axis in range(len(dims))]
    for loads in per_axis:
        assert max(loads) / (sum(loads) / len(loads)) == pytest.approx(1.0, abs=2e-3 if len(dims) == 2 else 0.05)


def test_plain_dimension_order_misses_the_bound_on_a_square_torus() -> None:
    """Why the routes are split: without it the baseline is slower than the network makes it."""
    plain, _ = _all_to_all(Torus((8, 8), split=False), 64e6, 4)
    split, _ = _all_to_all(Torus((8, 8)), 64e6, 4)
    assert plain > 1.1 * split


def test_fewer_chunks_fill_the_pipeline_worse() -> None:
    times = [_all_to_all(Torus((4, 4)), 64e6, chunks)[0] for chunks in (1, 2, 8, 32)]
    assert times == sorted(times, reverse=True)


def test_unknown_topologies_and_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="topology is 'mesh'; allowed: torus2d"):
        topology.make("mesh", 16)
    with pytest.raises(ModelError, match="nodes of torus2d is 17; allowed: 4, 8, 16"):
        topology.make("torus2d", 17)
    assert math.prod(topology.GRIDS_3D[1024]) == 1024
