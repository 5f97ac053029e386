"""The strategies of the comparison as times: how each arranges one operator's computation and communication.

`compute` (no communication at all) is the yardstick beside them. `fused` runs at the transport of the machine. All are
seconds from the launch by every rank at once to the end on the last rank.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kernels.plan import Plan

from . import offload
from .errors import require
from .kernel import replay
from .machine import Machine
from .plans import Operation


def compute(machine: Machine, operation: Operation) -> float:
    """The operator's compute kernel alone."""
    return replay(machine, operation, "compute").time


def bulk(machine: Machine, operation: Operation) -> float:
    """The baseline: the compute kernel, the vendor's collective, and the permutation where its result is not in place."""
    together = compute(machine, operation) + machine.collective(operation.collective, operation.collective_bytes)
    return together + rearrangement(machine, operation)


def rearrangement(machine: Machine, operation: Operation) -> float:
    """Seconds of the permutation kernel behind a collective on a whole buffer: a launch, one read and one write."""
    if operation.rearranged == 0:
        return 0.0
    return machine.launch + 2 * operation.rearranged / machine.memory


def fused(machine: Machine, operation: Operation) -> float:
    """The paper's kernel."""
    return replay(machine, operation, machine.transport).time


def limit(machine: Machine, operation: Operation) -> float:
    """No kernel can be faster: the slowest of memory, math and links at their reached rates, plus one flag latency.

    Between all pairs at once a link layer of pairs carries a rank's bytes on world_size - 1 links.
    """
    return max(
        operation.bytes_read() / machine.memory_rate(operation.operator),
        operation.flops() / machine.math_rate(operation.operator),
        operation.bytes_sent() / machine.capacity,
    ) + (machine.flag if operation.world_size > 1 else 0.0)


def part(plan: Plan, keep: np.ndarray) -> Plan:
    """The plan of a kernel that runs only some logical work-groups, dealt out to its grid afresh."""
    grid = min(plan.grid, int(keep.sum()))
    columns = {k: getattr(plan, k)[keep] for k in ("order", "dest", "slice", "bytes_read", "bytes_sent", "flops")}
    return Plan(grid=grid, wg=(np.arange(int(keep.sum())) % max(grid, 1)).astype(np.int32), **columns)


def decomposed(machine: Machine, operation: Operation) -> float:
    """Wang et al., ASPLOS'23: one kernel a destination; each result is sent while the next is computed.

    Assumptions: the destinations' kernels follow each other on one stream, remote ones first, with a launch each; a copy
    engine on another stream sends each finished part (a launch and a flag to start behind an event; full link rate, no CUs);
    an AllReduce ends with a kernel that adds the received parts and a direct all-gather by the same engines. Ranks are
    alike, so one stands for all.
    """
    plan, world = operation.plans[0], operation.world_size
    ready = link = 0.0
    for hop in range(1, world + 1):
        dest = hop % world
        keep = plan.dest == dest
        if not keep.any():
            continue
        alone = replace(operation, plans=tuple(part(plan, keep) for _ in range(world)))
        ready += compute(machine, alone)
        if dest != 0:
            start = ready + machine.launch + machine.flag
            begin = start if machine.fabric == "pairwise" else max(start, link)
            link = max(link, begin + float(plan.bytes_sent[keep].sum()) / machine.link)
    end = max(ready, link)
    if operation.collective == "all_reduce":
        own = float(plan.bytes_sent[plan.dest == 0].sum())
        add = machine.launch + world * own / machine.memory_rate(operation.operator)
        gather = machine.launch + machine.flag + (world - 1) * own * operation.reduce_bytes / machine.capacity
        end += add + gather
    return end


STRATEGIES: dict[str, Callable[[Machine, Operation], float]] = {
    "bulk": bulk,
    "decomposed": decomposed,
    "fused": fused,
    "t3": offload.t3,
    "t3_mca": lambda machine, operation: offload.t3(machine, operation, contention=False),
    "in_switch": offload.in_switch,
    "ace": offload.ace,
}


def time(strategy: str, machine: Machine, operation: Operation) -> float:
    """Seconds of `operation` by `strategy` ("compute" included). Raises `ModelError` where it cannot apply."""
    known = {"compute": compute, **STRATEGIES}
    require(strategy in known, "strategy", strategy, ", ".join(known))
    return known[strategy](machine, operation)
