"""Other topologies, stragglers, links that lost bandwidth: closed forms, bounds, monotonicity."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import simpy

from experiments.model import dlrm, topology, workload
from experiments.model.collectives import all_reduce_closed_form
from experiments.model.dlrm import Faults, simulate
from experiments.model.network import Network

BANDWIDTH, LATENCY = 25e9, 0.7e-6
SYSTEM = workload.system(workload.load_network("torus2d"))
DLRM = workload.load_workload("dlrm-43x682")
NODES = 16
LOAD = workload.load_of(DLRM, SYSTEM, NODES, "weak")


def _all_to_all(t: topology.Topology, each: float, chunks: int, weak: dict[int, float] | None = None) -> float:
    """Seconds until every node has `each` bytes of every other."""
    env = simpy.Environment()
    net = Network(env, t, BANDWIDTH, LATENCY)
    for link, factor in (weak or {}).items():
        net.bandwidth[link] *= factor
    latches = [net.latch((t.nodes - 1) * chunks) for _ in range(t.nodes)]
    for node in range(t.nodes):
        env.process(net.exchange(node, each / chunks, chunks, latches))
    net.run()
    return env.now


def _loads(t: topology.Topology) -> Counter:
    """Messages that each link carries when every node sends one to every other."""
    return Counter(link for a in range(t.nodes) for b in range(t.nodes) for link in t.route(a, b))


@pytest.mark.parametrize(("kind", "nodes", "slack"), [("fat_tree", 16, 1.05), ("fat_tree", 64, 1.12), ("dragonfly", 64, 1.05), ("torus3d", 64, 1.15)])  # fmt: skip
def test_all_to_all_takes_what_the_busiest_link_takes(kind: str, nodes: int, slack: float) -> None:
    t = topology.make(kind, nodes)
    busiest = {"fat_tree": nodes - 1, "dragonfly": 16 * 16, "torus3d": nodes * 4 // 8}[kind]
    assert max(_loads(t).values()) == pytest.approx(busiest, rel=0.13 if kind == "torus3d" else 0)
    each = 1e6
    bound = max(_loads(t).values()) * each / BANDWIDTH
    assert bound <= _all_to_all(t, each, 8) <= slack * bound


def test_a_dragonflys_groups_share_one_link() -> None:
    """64 nodes: 4 groups of 16, so a global link carries 16 x 16 pairs, four times what a node's own link does."""
    t = topology.make("dragonfly", 64)
    loads = _loads(t)
    first = 2 * 64 + t.groups * t.routers**2
    between = [loads[first + a * t.groups + b] for a in range(4) for b in range(4) if a != b]
    assert between == [256] * 12
    assert loads[0] == 63


@pytest.mark.parametrize("factor", [0.5, 0.1])
def test_a_message_over_a_weak_link_is_its_closed_form(factor: float) -> None:
    torus = topology.Torus((16, 16))
    env = simpy.Environment()
    net = Network(env, torus, BANDWIDTH, LATENCY)
    net.bandwidth[torus.route(0, 5)[2]] *= factor
    net.send(0, 5, 1e6, net.latch(1))
    net.run()
    assert env.now == pytest.approx((4 + 1 / factor) * 1e6 / BANDWIDTH + 5 * LATENCY, rel=1e-12)


@pytest.mark.parametrize("kind", ["torus2d", "torus3d", "fat_tree", "dragonfly"])
def test_all_to_all_waits_for_its_weakest_link(kind: str) -> None:
    t = topology.make(kind, NODES)
    loads = _loads(t)
    link, each = max(loads, key=lambda at: loads[at]), 1e6
    times = [_all_to_all(t, each, 4, {link: factor}) for factor in (1.0, 0.5, 0.25, 0.1)]
    for factor, time in zip((1.0, 0.5, 0.25, 0.1), times, strict=True):
        assert time >= loads[link] * each / (factor * BANDWIDTH)
    assert all(a < b for a, b in itertools.pairwise(times))
    assert times[-1] <= 1.2 * loads[link] * each / (0.1 * BANDWIDTH)  # nothing else matters any more


@pytest.mark.parametrize("strategy", dlrm.STRATEGIES)
@pytest.mark.parametrize("scope", dlrm.SCOPES)
def test_weaker_links_and_slower_nodes_cost_more(strategy: str, scope: str) -> None:
    def time(faults: Faults) -> float:
        return simulate(SYSTEM, LOAD, NODES, strategy, scope, faults=faults).time

    healthy = time(Faults())
    assert time(Faults(slow_nodes={5: 1.0}, weak_links={9: 1.0})) == healthy
    slow = [time(Faults(slow_nodes={5: factor})) for factor in (1.25, 2.0, 4.0)]
    weak = [time(Faults(weak_links={9: factor})) for factor in (0.5, 0.25, 0.1)]
    assert all(a < b for a, b in itertools.pairwise([healthy, *slow]))
    assert all(a <= b for a, b in itertools.pairwise([healthy, *weak]))
    assert weak[-1] > healthy
    for factor, found in zip((1.25, 2.0, 4.0), slow, strict=True):
        assert found >= factor * LOAD.embedding
        assert found <= factor * healthy  # no worse than if all nodes were slow


@pytest.mark.parametrize("strategy", dlrm.STRATEGIES)
@pytest.mark.parametrize(("name", "value"), [("link", 2 * SYSTEM.link), ("latency", 0.0), ("put_cost", 0.0)])
def test_better_networks_are_not_slower(strategy: str, name: str, value: float) -> None:
    nominal = simulate(SYSTEM, LOAD, NODES, strategy).time
    # Messages that all leave at once queue in another order than those that leave one by one: a quarter of a percent.
    slack = 1.0025 if name == "put_cost" else 1.0
    assert simulate(replace(SYSTEM, **{name: value}), LOAD, NODES, strategy).time <= slack * nominal


@pytest.mark.parametrize("dims", [(4, 4), (4, 8), (8, 16), (4, 4, 8)])
def test_the_ring_all_reduce_is_bandwidth_optimal(dims: tuple[int, ...]) -> None:
    """2 (N - 1) / N of the payload, half of it each way round."""
    n = topology.Torus(dims).nodes
    assert all_reduce_closed_form(dims, 64e6, BANDWIDTH, 0.0) == pytest.approx(
        2 * (n - 1) / n * 64e6 / (2 * BANDWIDTH), rel=1e-9
    )
