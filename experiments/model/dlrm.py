"""One DLRM training iteration, or its embedding + All-to-All alone, on a simulated network.

Forward: embedding (bulk: the whole kernel, a launch, then the all-to-all; fused: slices, remote ones first, each sent when it
is done), the bottom MLP hides what it can of the all-to-all, wait, interaction, top MLP. Backward: top MLP, start the
all-reduce of its gradients, interaction, all-to-all of the embedding gradients (bulk in both strategies: the fused operator
is the forward one), bottom MLP, start its all-reduce, wait for the all-to-all, update the embeddings, wait for the
all-reduces. Bulk and fused send the same messages in the same order, only at other times.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import simpy

from . import topology
from .collectives import AllReduce
from .errors import ModelError, require
from .network import Network, no_collector
from .workload import Load, System

STRATEGIES = ("bulk", "fused")
SCOPES = ("iteration", "embedding_all_to_all")
COMPONENTS = (
    "embedding",
    "bottom_mlp",
    "exposed_all_to_all_forward",
    "interaction",
    "top_mlp",
    "exposed_all_to_all_backward",
    "embedding_update",
    "exposed_all_reduce",
)
BACKWARD = 2.0  # a layer's backward pass is two products of the forward's size


@dataclass(frozen=True)
class Faults:
    """What is wrong with the machine: node -> factor on its compute times; link -> factor on its bandwidth."""

    slow_nodes: Mapping[int, float] = field(default_factory=dict)
    weak_links: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Seconds. `components`: of the node that ends last, adding up to `time`."""

    time: float
    components: Mapping[str, float]
    network: Network


class _Clock:
    """Attributes a node's time to components: everything since the last call belongs to the named one."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env, self.last, self.spent = env, 0.0, dict.fromkeys(COMPONENTS, 0.0)

    def book(self, component: str) -> None:
        self.spent[component] += self.env.now - self.last
        self.last = self.env.now


class _Iteration:
    def __init__(self, system: System, load: Load, nodes: int, strategy: str, chunks: int, faults: Faults) -> None:
        self.env = simpy.Environment()
        self.system, self.load, self.nodes, self.strategy, self.chunks = system, load, nodes, strategy, chunks
        self.net = Network(
            self.env, topology.make(system.topology, nodes), system.link, system.latency, system.put_cost
        )
        for link, factor in faults.weak_links.items():
            require(
                0 <= link < len(self.net.bandwidth) and factor > 0,
                "weak link",
                (link, factor),
                f"link 0 to {len(self.net.bandwidth) - 1}, factor > 0",
            )
            self.net.bandwidth[link] *= factor
        self.faults = faults
        expected = (nodes - 1) * chunks
        self.forward = [self.net.latch(expected) for _ in range(nodes)]
        self.backward = [self.net.latch(expected) for _ in range(nodes)]
        self.top = AllReduce(self.net, load.top_gradients)
        self.bottom = AllReduce(self.net, load.bottom_gradients)
        self.clocks = [_Clock(self.env) for _ in range(nodes)]
        self.ends = [0.0] * nodes

    def embedding(self, node: int, slow: float) -> Generator:
        """The forward embedding and everything it sends."""
        env, load, nodes = self.env, self.load, self.nodes
        size = load.pooled / nodes / self.chunks
        yield env.timeout(load.launch)
        if self.strategy == "bulk":
            yield env.timeout(load.embedding * slow + load.launch)
            yield from self.net.exchange(node, size, self.chunks, self.forward)
            return
        step = load.embedding * self.system.fused_slowdown * slow / nodes / self.chunks
        yield from self.net.exchange(node, size, self.chunks, self.forward, every=step)
        yield env.timeout(step * self.chunks)  # the node's own batch last

    def arrived(self, node: int) -> Generator:
        """All pooled embeddings for this node are here; the fused kernel sees it by a flag, one flag latency later."""
        yield self.forward[node]
        if self.strategy == "fused":
            yield self.env.timeout(self.system.node.flag)

    def alone(self, node: int) -> Generator:
        """Scope embedding_all_to_all."""
        clock = self.clocks[node]
        yield from self.embedding(node, self.faults.slow_nodes.get(node, 1.0))
        clock.book("embedding")
        yield from self.arrived(node)
        clock.book("exposed_all_to_all_forward")
        self.ends[node] = self.env.now

    def whole(self, node: int) -> Generator:
        """Scope iteration."""
        env, load, clock = self.env, self.load, self.clocks[node]
        slow = self.faults.slow_nodes.get(node, 1.0)
        yield from self.embedding(node, slow)
        clock.book("embedding")
        yield env.timeout(load.bottom * slow)
        clock.book("bottom_mlp")
        yield from self.arrived(node)
        clock.book("exposed_all_to_all_forward")
        yield env.timeout(load.interaction * slow)
        clock.book("interaction")
        yield env.timeout(load.top * slow * (1 + BACKWARD))
        clock.book("top_mlp")
        top = env.process(self.top.part(node))
        yield env.timeout(load.interaction * slow)
        clock.book("interaction")
        yield env.timeout(load.launch)
        yield from self.net.exchange(node, load.pooled / self.nodes / self.chunks, self.chunks, self.backward)
        clock.book("exposed_all_to_all_backward")
        yield env.timeout(load.bottom * slow * BACKWARD)
        clock.book("bottom_mlp")
        bottom = env.process(self.bottom.part(node))
        yield self.backward[node]
        clock.book("exposed_all_to_all_backward")
        yield env.timeout(load.update * slow)
        clock.book("embedding_update")
        yield top & bottom
        clock.book("exposed_all_reduce")
        self.ends[node] = env.now


def simulate(
    system: System,
    load: Load,
    nodes: int,
    strategy: str,
    scope: str = "iteration",
    chunks: int | None = None,
    faults: Faults | None = None,
) -> Result:
    """Simulate one iteration (or only its embedding + All-to-All) on every node from a common start.

    Args:
        chunks: messages a pair of nodes; default: the system's. The same for bulk and fused.
        faults: slow nodes and weak links.

    Raises `ModelError` for unknown names, and if anything sent was not delivered.
    """
    require(strategy in STRATEGIES, "strategy", strategy, ", ".join(STRATEGIES))
    require(scope in SCOPES, "scope", scope, ", ".join(SCOPES))
    run = _Iteration(system, load, nodes, strategy, chunks or system.chunks, faults or Faults())
    with no_collector():
        for node in range(nodes):
            run.env.process(run.whole(node) if scope == "iteration" else run.alone(node))
        run.net.run()
    net = run.net
    if net.injected != net.arrived or abs(net.sent - net.delivered) > 1e-6 * max(net.sent, 1.0) or min(run.ends) <= 0:
        raise ModelError(f"{net.injected - net.arrived} messages of {net.injected} were not delivered")
    last = max(range(nodes), key=lambda n: run.ends[n])
    return Result(run.ends[last], run.clocks[last].spent, net)
