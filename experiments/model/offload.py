"""Strategies that need hardware which is not there: each as small as its idea, with its assumptions in its docstring.

Their numbers are in `Assumptions`; everything else comes from the machine's profile.
"""

from dataclasses import dataclass

from .errors import ModelError
from .kernel import Kernel, replay
from .machine import US, Machine
from .plans import Operation, Step

IN_SWITCH_NEEDS = "an All-to-All has nothing to reduce in a switch"


@dataclass(frozen=True)
class Assumptions:
    """Seconds. trigger: from a tracked store or a finished kernel to the first byte of the DMA or engine it starts."""

    trigger: float = 0.5 * US


def t3(
    machine: Machine, operation: Operation, contention: bool = True, assumptions: Assumptions = Assumptions()
) -> float:
    """T3 (Pati et al., ASPLOS'24): hardware tracks the producer's stores and starts a DMA for each finished tile.

    Assumptions: the compute kernel runs unchanged (full occupancy, no signals, no launch behind it); a DMA starts `trigger`
    after its tile, uses the links like a peer store, and re-reads the tile from memory. `contention`: that read shares
    memory with the compute kernel; without (T3-MCA) the memory controller serves it in the gaps, for nothing. Memory reduces
    arriving partial results with one update, no work-group takes part. An AllReduce is reduce-scatter (overlapped) and then,
    for each owner's part when it is complete, an all-gather by DMA (not overlapped).
    """
    kernel = Kernel(machine, operation, "compute", [0.0] * operation.world_size)
    world = operation.world_size
    part = [0.0] * world  # bytes of each owner's part
    for plan in operation.plans:
        for dest in range(world):
            part[dest] += float(plan.bytes_sent[plan.dest == dest].sum())
    left = list(part)
    finish = [0.0]

    def landed() -> None:
        finish[0] = max(finish[0], kernel.env.now + machine.flag)

    def reduced(owner: int, size: float) -> None:
        left[owner] -= size
        if left[owner] <= 0.5 and operation.collective == "all_reduce":
            result = part[owner] / world * operation.reduce_bytes
            for peer in kernel.peers(owner):
                kernel.fabric.send(owner, peer, result, landed)

    def on_result(rank: int, step: Step, weight: int) -> None:
        size = step.bytes_sent * weight
        if step.dest == rank:
            reduced(rank, size)
            return
        if contention:
            kernel.memory[rank].request(step.bytes_sent, weight)

        def arrive() -> None:
            kernel.write(step.dest, step.bytes_sent, weight)
            landed()
            reduced(step.dest, size)

        start = kernel.env.timeout(assumptions.trigger)
        start.callbacks.append(lambda _: kernel.fabric.send(rank, step.dest, size, arrive))

    kernel.on_result = on_result
    outcome = kernel.run()
    if any(remaining > 0.5 for remaining in left):
        raise ModelError(f"t3: {sum(left):.0f} bytes of {operation.operator} were never reduced")
    return max(outcome.time, finish[0])


def in_switch(machine: Machine, operation: Operation) -> float:
    """In-switch reduction behind a bulk kernel.

    Assumptions: every GPU sends its partial result once and receives the sum once, pipelined through the switch at the full
    rate of its links; the collective's alpha is the library's. An All-to-All gains nothing and is refused.
    """
    if operation.collective != "all_reduce":
        raise ModelError(IN_SWITCH_NEEDS)
    compute = replay(machine, operation, "compute").time
    return compute + machine.alpha_all_reduce + operation.collective_bytes / machine.capacity


def ace(machine: Machine, operation: Operation, assumptions: Assumptions = Assumptions()) -> float:
    """ACE (Rashidi et al., ISCA'21): a collective engine beside the network interface frees the CUs.

    Assumptions: the collective still follows the whole compute kernel, but starts after `trigger` instead of a launch and a
    library's alpha, moves its bytes at the full rate of the links, and puts them in place (no permutation).
    """
    world = operation.world_size
    passes = 2 if operation.collective == "all_reduce" else 1
    moved = passes * (world - 1) / world * operation.collective_bytes
    return replay(machine, operation, "compute").time + assumptions.trigger + moved / machine.capacity + machine.flag
