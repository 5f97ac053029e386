"""Windows of messages against one event a hop: the same times to the last bit, whatever is sent."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import simpy
from event_network import EventNetwork
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.model import dlrm, routes, topology, workload
from experiments.model.dlrm import Faults
from experiments.model.network import Network
from experiments.model.pending import Pending

SYSTEM = workload.system(workload.load_network("torus2d"))
DLRM = workload.load_workload("dlrm-43x682")
FAULTS = Faults(slow_nodes={3: 1.3}, weak_links={7: 0.5})


def _both(monkeypatch: pytest.MonkeyPatch, *args: object, **options: object) -> list[dlrm.Result]:
    found = []
    for network in (Network, EventNetwork):
        monkeypatch.setattr(dlrm, "Network", network)
        found.append(dlrm.simulate(*args, **options))
    return found


def _same(ours: dlrm.Result, oracle: dlrm.Result) -> None:
    assert ours.time == oracle.time
    assert ours.components == oracle.components
    assert (ours.network.injected, ours.network.arrived) == (oracle.network.injected, oracle.network.arrived)
    assert list(ours.network.busy) == oracle.network.busy
    np.testing.assert_allclose(ours.network.bytes, oracle.network.bytes, rtol=1e-12)


@pytest.mark.parametrize(
    ("scaling", "scope", "strategy"), [*itertools.product(workload.SCALINGS, dlrm.SCOPES, dlrm.STRATEGIES)]
)
@pytest.mark.parametrize("faults", [Faults(), FAULTS], ids=["healthy", "faults"])
def test_an_iteration_equals_the_event_by_event_one(
    monkeypatch: pytest.MonkeyPatch, scaling: str, scope: str, strategy: str, faults: Faults
) -> None:
    load = workload.load_of(DLRM, SYSTEM, 16, scaling)
    _same(*_both(monkeypatch, SYSTEM, load, 16, strategy, scope, faults=faults))


@pytest.mark.parametrize("name", ["torus2d", "torus3d", "fat_tree", "dragonfly"])
@pytest.mark.parametrize("strategy", dlrm.STRATEGIES)
def test_equal_at_64_nodes_of_every_topology(monkeypatch: pytest.MonkeyPatch, name: str, strategy: str) -> None:
    system = workload.system(workload.load_network(name))
    _same(*_both(monkeypatch, system, workload.load_of(DLRM, system, 64, "weak"), 64, strategy, chunks=1))


@pytest.mark.parametrize("put_cost", [0.0, 20e-6])
def test_equal_where_puts_cost_nothing_or_decide(monkeypatch: pytest.MonkeyPatch, put_cost: float) -> None:
    system = replace(SYSTEM, put_cost=put_cost)
    for strategy in dlrm.STRATEGIES:
        _same(*_both(monkeypatch, system, workload.load_of(DLRM, system, 16, "weak"), 16, strategy))


_MESSAGE = st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 4), st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(_MESSAGE, min_size=1, max_size=40), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 1.0]))
def test_any_messages_and_answers_arrive_as_event_by_event(
    messages: list[tuple[int, int, int, int]], put_cost: float, latency: float
) -> None:
    """Equal times, empty messages, messages to oneself, answers sent on arrival; small integers make ties frequent."""

    def arrivals(network: type) -> tuple[list[float], list[float]]:
        env = simpy.Environment()
        net = network(env, topology.Torus((2, 4)), 1.0, latency, put_cost)
        found = [0.0] * len(messages)

        def talk(index: int, source: int, dest: int, size: int, at: int) -> simpy.events.ProcessGenerator:
            yield env.timeout(at)
            there, back = net.latch(1), net.latch(1)
            net.send(source, dest, float(size), there)
            yield there
            net.send(dest, source, float(size), back)
            yield back
            found[index] = env.now

        for index, message in enumerate(messages):
            env.process(talk(index, *message))
        net.run()
        assert net.injected == net.arrived == 2 * len(messages)
        assert net.sent == net.delivered
        return found, list(net.busy)

    ours, oracle = arrivals(Network), arrivals(EventNetwork)
    assert sorted(ours[0]) == sorted(oracle[0])
    assert ours == oracle


@pytest.mark.parametrize("t", [topology.Torus((4, 8)), topology.Torus((2, 4, 4)), topology.Torus((3, 5)), topology.Torus((4, 4), split=False),
                               topology.make("fat_tree", 16), topology.make("dragonfly", 16)], ids=str)  # fmt: skip
def test_the_table_of_routes_is_the_topologys(t: topology.Topology) -> None:
    rows = iter(routes.table(t).tolist())
    for source in range(t.nodes):
        for dest in range(t.nodes):
            row = next(rows)
            route = t.route(source, dest)
            assert tuple(row[: len(route)]) == route
            assert set(row[len(route) :]) == {-1}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=8), min_size=1, max_size=8), st.integers(1, 5))
def test_pending_events_are_a_stable_sort(batches: list[list[int]], window: int) -> None:
    pending, waiting, number = Pending(), [], itertools.count()
    floor = 0
    for batch in batches:
        added = [(floor + t, next(number)) for t in batch]
        waiting += added
        pending.insert(np.array([float(t) for t, _ in added]), np.array([n for _, n in added], dtype=np.int32), window)
        assert pending.first == min(waiting)[0]
        times, numbers = pending.until(pending.first + window, float("inf"))
        keep = max(1, len(times) - 1)  # the last is put back
        if keep < len(times):
            pending.put_back(times[keep:], numbers[keep:])
        taken = list(zip(times.tolist(), numbers.tolist(), strict=True))
        assert taken
        assert taken == sorted(waiting)[: len(taken)]
        waiting = sorted(waiting)[keep:]
        floor = int(times[keep - 1])
    while waiting:
        times, numbers = pending.until(pending.first + window, float("inf"))
        taken = list(zip(times.tolist(), numbers.tolist(), strict=True))
        assert taken == sorted(waiting)[: len(taken)]
        waiting = sorted(waiting)[len(taken) :]
    assert pending.first == float("inf")
