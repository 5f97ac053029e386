"""Cross-check of the link layer against SimGrid: the same all-to-all on the same torus over the same routes.

    /usr/bin/python3 experiments/model/simgrid_check.py            # (Debian: apt-get install python3-simgrid) writes simgrid_reference.csv
    /usr/bin/python3 experiments/model/simgrid_check.py NODES CHUNKS MEGABYTES    # one scenario, its time in ms on stdout

SimGrid is flow-level (max-min sharing), ours is store-and-forward over FIFO links, so they agree where bandwidth decides and
differ by pipeline filling and by what sharing does to stragglers. Its model is told to be raw (no TCP window, no cross
traffic, no latency weights); its torus zone is not used, since it sends almost all ties one way. Its clock persists across
engines: one scenario a process. It runs on Debian's Python, which has none of this project's packages: only the topology
module is loaded, which needs none.
"""

import csv
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "simgrid_reference.csv"
SCENARIOS = [
    (16, 1, 16),
    (16, 8, 16),
    (16, 8, 64),
    (64, 1, 16),
    (64, 4, 16),
    (64, 4, 64),
]  # nodes, chunks a pair, MB a node
BANDWIDTH = 25e9
LATENCY = 0.7e-6


def load_topology() -> types.ModuleType:
    """`experiments.model.topology` without the package around it (which imports what Debian's Python lacks)."""
    package = types.ModuleType("model")
    package.__path__ = [str(HERE)]
    sys.modules["model"] = package
    spec = importlib.util.spec_from_file_location("model.topology", HERE / "topology.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["model.topology"] = module
    spec.loader.exec_module(module)
    return module


def simulate(nodes: int, chunks: int, megabytes: float) -> float:
    """Milliseconds of one all-to-all of `megabytes` MB a node by SimGrid."""
    import simgrid

    torus = load_topology().make("torus2d", nodes)
    raw = ["network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0"]
    engine = simgrid.Engine(["check", "--log=root.thres:critical", *(f"--cfg={option}" for option in raw)])
    zone = simgrid.NetZone.create_full_zone("torus")
    hosts = [zone.create_host(f"n{i}", 1e12).seal() for i in range(nodes)]
    links = [zone.create_link(f"l{i}", BANDWIDTH).set_latency(LATENCY).seal() for i in range(torus.links)]
    for a in range(nodes):
        for b in range(nodes):
            if a != b:
                route = [simgrid.LinkInRoute(links[i]) for i in torus.route(a, b)]
                zone.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)
    zone.seal()
    size = int(megabytes * 1e6 / nodes / chunks)
    result = []

    def send_everything() -> None:
        messages = []
        for _ in range(chunks):
            for hop in range(1, nodes):
                messages += [simgrid.Comm.sendto_async(hosts[i], hosts[(i + hop) % nodes], size) for i in range(nodes)]
        simgrid.Comm.wait_all(messages)
        result.append(engine.clock)

    simgrid.Actor.create("all", hosts[0], send_everything)
    engine.run()
    return result[0] * 1e3


def main(arguments: list[str]) -> int:
    """One scenario to stdout, or all of them to the reference file."""
    if arguments:
        print(f"{simulate(int(arguments[0]), int(arguments[1]), float(arguments[2])):.9f}")
        return 0
    rows = []
    for nodes, chunks, megabytes in SCENARIOS:
        command = [sys.executable, __file__, str(nodes), str(chunks), str(megabytes)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(
            {
                "nodes": nodes,
                "chunks": chunks,
                "megabytes_per_node": megabytes,
                "link_gbps": BANDWIDTH / 1e9,
                "hop_latency_us": LATENCY * 1e6,
                "simgrid_ms": done.stdout.split()[-1],
            }
        )
        print(f"{nodes} nodes, {chunks} chunks, {megabytes} MB: {rows[-1]['simgrid_ms']} ms", flush=True)
    with REFERENCE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
