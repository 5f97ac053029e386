"""The operators' plans as the simulator wants them: steps of classes of equal work-groups.

The plans are `kernels.plan.Plan`s, the ones that the kernels run. Work-groups of a rank whose logical work-groups cost the
same and go to the same places are one class of weight n: under processor sharing equal work-groups that start together end
together, so this changes no result and saves most of the events.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.plan import Plan


@dataclass(frozen=True)
class Step:
    """One logical work-group of each member of a class. Bytes and FLOPs are of one member."""

    dest: int
    bytes_read: float
    bytes_sent: float
    flops: float
    slices: tuple[tuple[int, int], ...]  # (slice, how many members work on it)


@dataclass(frozen=True)
class WorkClass:
    """Physical work-groups in step: their numbers and their common list of steps."""

    members: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Operation:
    """One operator on one machine: the plan of every rank and what the collective behind a bulk kernel would move.

    Attributes:
        operator: its name.
        plans: one a rank.
        protocol: "scatter" (results go to `dest`), "two_phase" (`dest` owns and reduces), "one_shot" (all get everything).
        collective: "all_to_all" or "all_reduce"; collective_bytes: its buffer on one rank.
        reduce_bytes: bytes of one reduced result per byte of partial result (output element size / 4).
        rearranged: bytes that a permutation behind the bulk collective reads and writes again (a fused result is in place).
        read_fraction: bytes that memory serves for each byte the plan reads: less than one where caches serve what tiles share,
            more where rows do not fill whole sectors.
        waves: of one work-group (Triton's num_warps).
        in_flight: bytes of loads that a work-group keeps outstanding by its configuration (tile x stages, rows x unroll).
        tile_flops: FLOPs that any logical work-group takes at least: matrix units run whole tiles.
    """

    operator: str
    plans: tuple[Plan, ...]
    protocol: str
    collective: str
    collective_bytes: float
    waves: int = 4
    in_flight: float = float("inf")
    reduce_bytes: float = 1.0
    rearranged: float = 0.0
    read_fraction: float = 1.0
    tile_flops: float = 0.0

    @property
    def world_size(self) -> int:
        return len(self.plans)

    @cached_property
    def classes(self) -> list[list["WorkClass"]]:
        """Per rank: its work-groups grouped into classes."""
        return [classes(plan) for plan in self.plans]

    @cached_property
    def classes_by_slice(self) -> list[list["WorkClass"]]:
        """The same with slices accounted for."""
        return [classes(plan, by_slice=True) for plan in self.plans]

    def bytes_read(self, rank: int = 0) -> float:
        """Bytes that one rank's memory serves."""
        return float(self.plans[rank].bytes_read.sum()) * self.read_fraction

    def bytes_sent(self, rank: int = 0) -> float:
        """Bytes that one rank sends to others."""
        plan = self.plans[rank]
        remote = float(plan.bytes_sent[plan.dest != rank].sum())
        if self.protocol == "scatter":
            return remote
        total, own = float(plan.bytes_sent.sum()), float(plan.bytes_sent.sum()) - remote
        if self.protocol == "one_shot":
            return total * (self.world_size - 1)
        return remote + own * self.reduce_bytes * (self.world_size - 1)

    def flops(self, rank: int = 0) -> float:
        """FLOPs of one rank."""
        return float(self.plans[rank].flops.sum())


def classes(plan: Plan, by_slice: bool = False) -> list[WorkClass]:
    """Group a plan's physical work-groups; `by_slice` keeps account of slices (an RDMA put carries one)."""
    order = np.argsort(plan.wg, kind="stable")  # stable: keeps each work-group's execution order
    columns = np.stack([plan.dest, plan.bytes_read, plan.bytes_sent, plan.flops], axis=1)[order]
    slices = plan.slice[order]
    wgs, firsts = np.unique(plan.wg[order], return_index=True)
    bounds = [*firsts.tolist(), len(order)]
    groups: dict[bytes, list[int]] = {}
    for i in range(len(wgs)):
        groups.setdefault(columns[bounds[i] : bounds[i + 1]].tobytes(), []).append(i)
    result = []
    for indices in groups.values():
        first = bounds[indices[0]]
        steps = []
        for k in range(bounds[indices[0] + 1] - first):
            dest, read, sent, flops = columns[first + k].tolist()
            members = Counter(int(slices[bounds[i] + k]) for i in indices) if by_slice else {}
            steps.append(Step(int(dest), read, sent, flops, tuple(members.items())))
        result.append(WorkClass(tuple(int(wgs[i]) for i in indices), tuple(steps)))
    return result
