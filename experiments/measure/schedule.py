"""What is decided before anything is timed: order of the arms, repetitions, rotation of buffers, what counts as suspect. No torch."""

import random
from dataclasses import dataclass

L2_TIMES = 5.0  # rotate through at least this many L2 caches of operands
MAX_SLOTS = 24
GRAPH_TARGET_US = 400.0
MAX_CALLS = 48


def order(arms: list[str], samples: int, seed: int) -> list[list[str]]:
    """For each sample, all arms in a random order of its own; the seed is recorded."""
    rng = random.Random(seed)
    return [rng.sample(arms, len(arms)) for _ in range(samples)]


def slots(bytes_read: int, l2_bytes: int, memory_bytes: int) -> int:
    """Copies of the operands to rotate through, so that no call finds its operands in the L2 cache.

    At least two; as many as make `L2_TIMES` caches, at most `MAX_SLOTS` and what fits in `memory_bytes`.
    """
    wanted = -(-int(L2_TIMES * l2_bytes) // max(1, bytes_read))
    return max(2, min(wanted, MAX_SLOTS, memory_bytes // max(1, bytes_read)))


def calls(estimate_us: float, n_slots: int) -> int:
    """Calls in one graph: about `GRAPH_TARGET_US` long, whole rounds of the slots, so that each slot counts alike."""
    rounds = max(1, round(GRAPH_TARGET_US / max(estimate_us, 1.0) / n_slots))
    return max(n_slots, min(rounds * n_slots, max(n_slots, MAX_CALLS // n_slots * n_slots)))


@dataclass(frozen=True)
class Health:
    """One GPU at one moment; None where the driver does not say.

    Attributes:
        sm_mhz, memory_mhz: clocks. temperature_c. power_w.
        throttle: bits of NVML's clocks event reasons that slow the chip (thermal, power brake, hardware slowdown).
        others: compute processes beside this one's.
        utilisation_percent.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: int | None = None
    others: int | None = None


# NVML: hardware slowdown 0x8, software thermal 0x20, hardware thermal 0x40, hardware power brake 0x80. Idle (0x1), application
# clocks (0x2) and the software power cap (0x4, normal under a full load) do not make a sample suspect by themselves.
SLOWING = 0x8 | 0x20 | 0x40 | 0x80
HOT_C = 88
CLOCK_DROP = 0.9


def suspect(before: Health, after: Health) -> str:
    """Why samples taken between the two should not be trusted; "" if nothing speaks against them."""
    reasons = []
    for moment, health in (("before", before), ("after", after)):
        if health.throttle and health.throttle & SLOWING:
            reasons.append(f"throttled {moment} (reasons {health.throttle & SLOWING:#x})")
        if health.temperature_c is not None and health.temperature_c >= HOT_C:
            reasons.append(f"{health.temperature_c} C {moment}")
        if health.others:
            reasons.append(f"{health.others} other processes {moment}")
    if before.memory_mhz and after.memory_mhz and after.memory_mhz < CLOCK_DROP * before.memory_mhz:
        reasons.append(f"memory clock fell from {before.memory_mhz} to {after.memory_mhz} MHz")
    return "; ".join(reasons)
