"""DLRM workloads and scale-out networks: YAML schemas, and the seconds and bytes that one node has of each part of an iteration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import machine as machines
from . import profile
from .errors import require
from .machine import GB, TERA, US, Machine
from .profile import Count, Duration, Rate, Strict, quantity

HERE = Path(__file__).parent
SCALINGS = ("strong", "weak", "growing")


class Workload(Strict):
    """A DLRM. At `reference_nodes` all scalings are the same iteration."""

    name: str
    title: str
    tables: Count  # at reference_nodes
    dim: Count
    pooling: Count  # mean lookups a bag
    batch_per_node: Count  # at reference_nodes
    reference_nodes: Count
    bottom_layers: Count
    top_layers: Count
    mlp_width: Count
    element_bytes: quantity("B", 1)  # type: ignore[valid-type]


class NetworkFile(Strict):
    """A scale-out network and what its nodes do beyond the profile of `node`."""

    name: str
    title: str
    topology: Literal["torus2d", "torus3d", "fat_tree", "dragonfly"]
    node: str  # a machine profile
    link: Rate
    hop_latency: Duration
    put_cost: Duration
    chunks: Count  # messages a pair of nodes in one all-to-all, bulk and fused alike
    mlp_rate: quantity("TFLOP/s", 1e-6)  # type: ignore[valid-type]
    fused_slowdown: quantity("1", 1.0, 10.0)  # type: ignore[valid-type]  # of the fused embedding over its compute kernel


def _load(folder: str, name: str, schema: type[Strict]) -> Strict:
    known = sorted(path.stem for path in (HERE / folder).glob("*.yaml"))
    require(name in known, folder.removesuffix("s"), name, ", ".join(known))
    return profile.load_layered(HERE / folder, name, schema)


def load_workload(name: str) -> Workload:
    """`workloads/<name>.yaml`. Raises `ModelError`."""
    return _load("workloads", name, Workload)  # type: ignore[return-value]


def load_network(name: str) -> NetworkFile:
    """`networks/<name>.yaml`. Raises `ModelError`."""
    return _load("networks", name, NetworkFile)  # type: ignore[return-value]


def workload_names() -> list[str]:
    """Every workload there is."""
    return sorted(path.stem for path in (HERE / "workloads").glob("*.yaml"))


@dataclass(frozen=True)
class System:
    """A network in SI units, with its node."""

    name: str
    topology: str
    node: Machine
    link: float
    latency: float
    put_cost: float
    chunks: int
    mlp_rate: float
    fused_slowdown: float


def system(network: NetworkFile) -> System:
    """Convert units once."""
    return System(
        name=network.name,
        topology=network.topology,
        node=machines.from_profile(profile.load(network.node)),
        link=network.link.value * GB,
        latency=network.hop_latency.value * US,
        put_cost=network.put_cost.value * US,
        chunks=int(network.chunks.value),
        mlp_rate=network.mlp_rate.value * TERA,
        fused_slowdown=network.fused_slowdown.value,
    )


@dataclass(frozen=True)
class Load:
    """What one node does in an iteration: seconds of each part (launches included), bytes of each exchange.

    Attributes:
        embedding: forward embedding kernel, without its launch; slices of it are what fused sends.
        pooled: bytes of pooled embeddings that one node makes (and, by symmetry, takes in).
    """

    embedding: float
    update: float
    bottom: float
    top: float
    interaction: float
    pooled: float
    bottom_gradients: float
    top_gradients: float
    launch: float


def load_of(w: Workload, s: System, nodes: int, scaling: str) -> Load:
    """One node's part under a scaling.

    strong: tables and global batch as at the reference size; weak: tables as there, batch a node as there; growing: tables a
    node and batch a node as there (so a node's embedding work grows with the machine). Work and tables divide evenly.
    """
    require(scaling in SCALINGS, "scaling", scaling, ", ".join(SCALINGS))
    reference = w.reference_nodes.value
    local_batch = w.batch_per_node.value * (reference / nodes if scaling == "strong" else 1)
    tables = w.tables.value / (reference if scaling == "growing" else nodes)
    size = w.element_bytes.value
    global_batch = local_batch * nodes
    memory = s.node.memory_rate("embedding_all_to_all")
    pooled = tables * global_batch * w.dim.value * size
    lookups = pooled * w.pooling.value
    width = w.mlp_width.value
    layer = max(2 * local_batch * width**2 / s.mlp_rate, (width**2 + 2 * local_batch * width) * size / s.node.memory)
    layer += s.node.launch
    return Load(
        embedding=(lookups + pooled) / memory,
        update=s.node.launch + (2 * lookups + pooled) / memory,  # read-modify-write of every looked-up row
        bottom=w.bottom_layers.value * layer,
        top=w.top_layers.value * layer,
        interaction=s.node.launch + 2 * pooled / s.node.memory,
        pooled=pooled,
        bottom_gradients=w.bottom_layers.value * width**2 * size,
        top_gradients=w.top_layers.value * width**2 * size,
        launch=s.node.launch,
    )
