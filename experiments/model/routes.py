"""All routes of a topology as one array, so that many messages can take their next link at once."""

import numpy as np

from .topology import Topology, Torus


def table(topology: Topology) -> np.ndarray:
    """int32 [nodes * nodes, longest route + 1]: row source * nodes + dest is `topology.route(source, dest)`, then -1."""
    return _torus(topology) if isinstance(topology, Torus) else _one_by_one(topology)


def _one_by_one(topology: Topology) -> np.ndarray:
    routes = [topology.route(source, dest) for source in range(topology.nodes) for dest in range(topology.nodes)]
    found = np.full((len(routes), max(map(len, routes)) + 1), -1, dtype=np.int32)
    for row, route in zip(found, routes, strict=True):
        row[: len(route)] = route
    return found


def _torus(torus: Torus) -> np.ndarray:
    """`Torus.route` of all pairs at once: a million of them one by one take longer than the simulation."""
    d, n = len(torus.dims), torus.nodes
    source, dest = np.divmod(np.arange(n * n, dtype=np.int32), n)
    found = np.full((n * n, sum(k // 2 for k in torus.dims) + 1), -1, dtype=np.int32)
    length = np.zeros(n * n, dtype=np.int32)
    node = source.copy()
    first = (source + dest) % d if torus.split else np.zeros_like(source)
    for turn in range(d):
        for axis, (k, stride) in enumerate(zip(torus.dims, torus.strides, strict=True)):
            pairs = np.flatnonzero((first + turn) % d == axis)
            here = source[pairs] // stride % k
            hops = (dest[pairs] // stride % k - here) % k
            back = (2 * hops > k) | ((2 * hops == k) & torus.split & (here % 2 == 1))
            step = np.where(back, -1, 1)
            hops = np.where(back, k - hops, hops)
            for done in range(k // 2):
                moving = hops > done
                pairs, step, hops = pairs[moving], step[moving], hops[moving]
                at = node[pairs]
                found[pairs, length[pairs]] = (at * d + axis) * 2 + (step < 0)
                length[pairs] += 1
                place = at // stride % k
                node[pairs] = at + ((place + step) % k - place) * stride
    return found
