"""Topologies of the scale-out network: how many directed links there are and which of them a message takes.

A topology is pure: `route(source, dest)` is a tuple of link numbers, `rate(link)` a factor on the network's link bandwidth.
Routes are minimal and deterministic. Hosts are the nodes themselves in a torus; in a fat-tree and a dragonfly each node has
one up and one down link of the same bandwidth as the rest.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from .errors import require

GRIDS_2D = {
    4: (2, 2),
    8: (2, 4),
    16: (4, 4),
    32: (4, 8),
    64: (8, 8),
    128: (8, 16),
    256: (16, 16),
    512: (16, 32),
    1024: (32, 32),
}
GRIDS_3D = {
    8: (2, 2, 2),
    16: (2, 2, 4),
    32: (2, 4, 4),
    64: (4, 4, 4),
    128: (4, 4, 8),
    256: (4, 8, 8),
    512: (8, 8, 8),
    1024: (8, 8, 16),
}


class Topology(Protocol):
    """What the link layer needs."""

    nodes: int
    links: int

    def route(self, source: int, dest: int) -> tuple[int, ...]:
        """Links from `source` to `dest` in order; empty when they are the same node."""
        ...


@dataclass(frozen=True)
class Torus:
    """k-dimensional torus, dimension-ordered minimal routes, split so that all-to-all loads every link alike.

    Two splits (`split` False gives plain dimension order): the way round at distance k/2 goes by the parity of the source's
    coordinates, and the order of the dimensions rotates with the pair (for two dimensions: Y-then-X for half of the pairs).
    Without the second, FIFO links miss the all-to-all bound on square tori and flatter whatever is compared against bulk.

    Link number: (node * dimensions + axis) * 2 + (0 up, 1 down).
    """

    dims: tuple[int, ...]
    split: bool = True

    @cached_property
    def nodes(self) -> int:
        n = 1
        for k in self.dims:
            n *= k
        return n

    @cached_property
    def links(self) -> int:
        return self.nodes * len(self.dims) * 2

    @cached_property
    def strides(self) -> tuple[int, ...]:
        strides, n = [], 1
        for k in self.dims:
            strides.append(n)
            n *= k
        return tuple(strides)

    def coordinates(self, node: int) -> tuple[int, ...]:
        """Position of a node; the first dimension varies fastest."""
        return tuple(node // stride % k for stride, k in zip(self.strides, self.dims, strict=True))

    def neighbour(self, node: int, axis: int, step: int) -> int:
        """The node `step` further along an axis."""
        k, stride = self.dims[axis], self.strides[axis]
        at = node // stride % k
        return node + ((at + step) % k - at) * stride

    def route(self, source: int, dest: int) -> tuple[int, ...]:
        here, there = self.coordinates(source), self.coordinates(dest)
        d = len(self.dims)
        first = (source + dest) % d if self.split else 0
        node, path = source, []
        for axis in ((first + i) % d for i in range(d)):
            k = self.dims[axis]
            hops = (there[axis] - here[axis]) % k
            # At distance k/2 both ways are minimal.
            if 2 * hops > k or (2 * hops == k and self.split and here[axis] % 2):
                hops -= k
            step = 1 if hops > 0 else -1
            for _ in range(abs(hops)):
                path.append((node * d + axis) * 2 + (step < 0))
                node = self.neighbour(node, axis, step)
        return tuple(path)


@dataclass(frozen=True)
class FatTree:
    """Two-level fat-tree with full bisection: leaves of `radix` nodes, `radix` spines; the spine is chosen by the destination.

    Links: node up, node down, then leaf-to-spine and spine-to-leaf.
    """

    nodes: int
    radix: int

    @property
    def leaves(self) -> int:
        return -(-self.nodes // self.radix)

    @property
    def links(self) -> int:
        return 2 * self.nodes + 2 * self.leaves * self.radix

    def route(self, source: int, dest: int) -> tuple[int, ...]:
        if source == dest:
            return ()
        up, down = source, self.nodes + dest
        a, b = source // self.radix, dest // self.radix
        if a == b:
            return (up, down)
        spine = dest % self.radix
        base = 2 * self.nodes
        return (up, base + a * self.radix + spine, base + self.leaves * self.radix + b * self.radix + spine, down)


@dataclass(frozen=True)
class Dragonfly:
    """Groups of `routers` routers with `hosts` nodes each, all-to-all inside a group, one link between any two groups; minimal routes.

    The link to group g sits on router g % routers of its group.
    """

    nodes: int
    routers: int
    hosts: int

    @property
    def groups(self) -> int:
        return -(-self.nodes // (self.routers * self.hosts))

    @property
    def links(self) -> int:
        return 2 * self.nodes + self.groups * self.routers * self.routers + self.groups * self.groups

    def route(self, source: int, dest: int) -> tuple[int, ...]:
        if source == dest:
            return ()
        a, b = source // self.hosts, dest // self.hosts  # routers, numbered through
        path = [source]

        def local(x: int, y: int) -> None:
            if x != y:
                group = x // self.routers
                path.append(
                    2 * self.nodes + (group * self.routers + x % self.routers) * self.routers + y % self.routers
                )

        ga, gb = a // self.routers, b // self.routers
        if ga == gb:
            local(a, b)
        else:
            out, into = ga * self.routers + gb % self.routers, gb * self.routers + ga % self.routers
            local(a, out)
            path.append(2 * self.nodes + self.groups * self.routers * self.routers + ga * self.groups + gb)
            local(into, b)
        return (*path, self.nodes + dest)


KINDS = ("torus2d", "torus3d", "fat_tree", "dragonfly")


def make(kind: str, nodes: int) -> Torus | FatTree | Dragonfly:
    """The topology of that kind with that many nodes. Raises `ModelError` for sizes without one."""
    require(kind in KINDS, "topology", kind, ", ".join(KINDS))
    grids = GRIDS_3D if kind == "torus3d" else GRIDS_2D
    require(nodes in grids, f"nodes of {kind}", nodes, ", ".join(map(str, grids)))
    if kind in ("torus2d", "torus3d"):
        return Torus(grids[nodes])
    if kind == "fat_tree":
        return FatTree(nodes, radix=min(16, nodes // 2))
    return Dragonfly(nodes, routers=4, hosts=min(4, max(1, nodes // 8)))
