"""Scale-out experiments: scaling of DLRM training from 16 to 128 nodes (more on request), topologies, faults, workload sweep."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from . import dlrm, profile, workload
from .errors import require
from .machine import US

NODES = (16, 32, 64, 128)
MAIN_WORKLOAD = "dlrm-43x682"
MAIN_NETWORK = "torus2d"
OTHER_NETWORKS = ("torus3d", "fat_tree", "dragonfly")
STUDY_NODES = 64  # topologies and faults
SWEEP_NODES = 128
POOLING = (10, 35, 70, 140)
MLP_WIDTH = (341, 682, 1364)


@dataclass(frozen=True)
class Scenario:
    """A named departure from the nominal iteration: faults, or an assumption of the model changed.

    Attributes:
        update: factor on the time of the embedding update.
        finer: factor on the messages a pair.
    """

    name: str
    faults: dlrm.Faults = field(default_factory=dlrm.Faults)
    update: float = 1.0
    finer: int = 1


SCENARIOS = (
    Scenario("one node 1.25x slower", dlrm.Faults(slow_nodes={0: 1.25})),
    Scenario("one node 2x slower", dlrm.Faults(slow_nodes={0: 2.0})),
    Scenario("one link at half bandwidth", dlrm.Faults(weak_links={0: 0.5})),
    Scenario("one link at a tenth of its bandwidth", dlrm.Faults(weak_links={0: 0.1})),
)
ASSUMPTIONS = (Scenario("no embedding update", update=0.0), Scenario("twice the messages a pair", finer=2))
NONE = Scenario("none")


@dataclass(frozen=True)
class Point:
    """One simulation; `study` names the file that its rows go to."""

    study: str
    workload: str
    network: str
    nodes: int
    scalings: tuple[str, ...]  # several where they coincide: simulated once
    strategy: str
    scope: str
    scenario: Scenario = NONE
    pooling: float | None = None
    mlp_width: float | None = None


def scaling_points(nodes: tuple[int, ...] = NODES) -> Iterator[Point]:
    """Every workload on the main network, all sizes and scalings, both scopes, largest first (better spread over workers)."""
    for n in sorted(nodes, reverse=True):
        for name in workload.workload_names():
            same = n == workload.load_workload(name).reference_nodes.value
            groups = [workload.SCALINGS] if same else [(s,) for s in workload.SCALINGS]
            for scalings in groups:
                for scope in dlrm.SCOPES:
                    for strategy in dlrm.STRATEGIES:
                        yield Point("scaleout", name, MAIN_NETWORK, n, scalings, strategy, scope)


def topology_points() -> Iterator[Point]:
    """The main workload on the other networks."""
    for network in OTHER_NETWORKS:
        for scope in dlrm.SCOPES:
            for strategy in dlrm.STRATEGIES:
                yield Point("scaleout", MAIN_WORKLOAD, network, STUDY_NODES, ("weak",), strategy, scope)


def fault_points() -> Iterator[Point]:
    """Stragglers and degraded links on the main network."""
    for scenario in SCENARIOS:
        for strategy in dlrm.STRATEGIES:
            yield Point(
                "scaleout", MAIN_WORKLOAD, MAIN_NETWORK, STUDY_NODES, ("weak",), strategy, "iteration", scenario
            )


def assumption_points() -> Iterator[Point]:
    """What of the model decides the reduction at the largest size."""
    for scenario in ASSUMPTIONS:
        for strategy in dlrm.STRATEGIES:
            yield Point(
                "scaleout", MAIN_WORKLOAD, MAIN_NETWORK, SWEEP_NODES, ("weak",), strategy, "iteration", scenario
            )


def sweep_points() -> Iterator[Point]:
    """Pooling x MLP width around the main workload: where does a given reduction hold?"""
    for pooling in POOLING:
        for width in MLP_WIDTH:
            for strategy in dlrm.STRATEGIES:
                yield Point(
                    "sweep",
                    MAIN_WORKLOAD,
                    MAIN_NETWORK,
                    SWEEP_NODES,
                    ("weak",),
                    strategy,
                    "iteration",
                    pooling=pooling,
                    mlp_width=width,
                )


def simulate(point: Point) -> list[dict[str, object]]:
    """Rows of one point: one a scaling and component (components add up to component "total")."""
    system = workload.system(workload.load_network(point.network))
    w = workload.load_workload(point.workload)
    for swept in ("pooling", "mlp_width"):
        value = getattr(point, swept)
        if value is not None:
            w = w.model_copy(update={swept: getattr(w, swept).model_copy(update={"value": float(value)})})
    load = workload.load_of(w, system, point.nodes, point.scalings[0])
    load = replace(load, update=load.update * point.scenario.update)
    chunks = system.chunks * point.scenario.finer
    result = dlrm.simulate(system, load, point.nodes, point.strategy, point.scope, chunks, point.scenario.faults)
    rows = []
    for scaling in point.scalings:
        common = {
            "backend": "model",
            "machine": system.node.name,
            "workload": point.workload,
            "topology": system.topology,
            "nodes": point.nodes,
            "chunks": chunks,
            "scaling": scaling,
            "scenario": point.scenario.name,
            "scope": point.scope,
            "strategy": point.strategy,
        }
        if point.study == "sweep":
            rows.append({**common, "pooling": point.pooling, "mlp_width": point.mlp_width, "time_us": result.time / US})
            continue
        rows.append({**common, "component": "total", "time_us": result.time / US})
        rows += [{**common, "component": name, "time_us": spent / US} for name, spent in result.components.items()]
    return rows


def one(point: Point) -> tuple[str, list[dict[str, object]]]:
    """A worker process's unit."""
    return point.study, simulate(point)


def reductions(rows: list[dict], keys: tuple[str, ...]) -> list[dict]:
    """Percent reduction of fused against bulk of total time, for each combination of `keys`."""
    times: dict[tuple, dict[str, float]] = {}
    for row in rows:
        if row.get("component", "total") == "total":
            times.setdefault(tuple(row[k] for k in keys), {})[row["strategy"]] = row["time_us"]
    return [
        {
            **dict(zip(keys, key, strict=True)),
            "backend": "model",
            "bulk_us": t["bulk"],
            "fused_us": t["fused"],
            "reduction_percent": 100 * (1 - t["fused"] / t["bulk"]),
        }
        for key, t in times.items()
    ]


SCALE_KEYS = ("machine", "workload", "topology", "nodes", "scaling", "scenario", "scope")
SWEEP_KEYS = ("machine", "workload", "topology", "nodes", "scaling", "scope", "pooling", "mlp_width")


def run(mapper: Callable, max_nodes: int = 128) -> dict[str, list[dict]]:
    """Rows of the files `scaleout`, `scaleout_reduction` and `scaleout_sweep`."""
    sizes = (*NODES, 256, 512, 1024)
    require(max_nodes in sizes, "max nodes", max_nodes, ", ".join(map(str, sizes)))
    nodes = tuple(n for n in sizes if n <= max_nodes)
    main = [
        p for p in scaling_points(nodes) if p.nodes <= 128 or (p.workload == MAIN_WORKLOAD and "weak" in p.scalings)
    ]
    points = [*main, *sweep_points(), *topology_points(), *fault_points(), *assumption_points()]
    points.sort(key=lambda p: -p.nodes)
    found: dict[str, list[dict]] = {"scaleout": [], "sweep": []}
    for study, rows in mapper(one, points, "scale-out"):
        found[study] += rows
    return {
        "scaleout": found["scaleout"],
        "scaleout_reduction": reductions(found["scaleout"], SCALE_KEYS),
        "scaleout_sweep": reductions(found["sweep"], SWEEP_KEYS),
    }


def setup_rows() -> list[dict[str, object]]:
    """Every number of the networks and workloads with unit and source, for the simulation set-up table."""
    rows = []
    for kind, names, load in (
        ("network", (MAIN_NETWORK, *OTHER_NETWORKS), workload.load_network),
        ("workload", workload.workload_names(), workload.load_workload),
    ):
        for name in names:
            for number, q in profile.quantities(load(name)):  # type: ignore[operator]
                rows.append(
                    {"kind": kind, "name": name, "field": number, "value": q.value, "unit": q.unit, "source": q.source}
                )
    return rows


def profile_rows() -> list[dict[str, object]]:
    """Every number of the machine profiles with unit and source."""
    rows = []
    for name in profile.names():
        for number, q in profile.quantities(profile.load(name)):
            rows.append({"machine": name, "field": number, "value": q.value, "unit": q.unit, "source": q.source})
    return rows
