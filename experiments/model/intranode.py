"""The three operators on every machine profile: times of all strategies, and the band that the assumed constants leave."""

from collections.abc import Callable, Iterator
from itertools import product

from . import machine as machines
from . import operations, profile, rows, strategies
from .errors import ModelError
from .machine import US, Machine
from .offload import IN_SWITCH_NEEDS

# Link +-30 %, memory +-20 %, launch (and collective alpha) x 0.5 to 2: all corners, nominal first.
SCALES = {"link": (0.7, 1.3), "memory": (0.8, 1.2), "launch": (0.5, 2.0)}
POINTS = [(1.0, 1.0, 1.0), *product(*SCALES.values())]
BAND_GPUS = 4  # larger nodes get nominal times only: no claim rests on them, and a corner costs seconds there
BAND_STRATEGIES = ("compute", "bulk", "fused")
NO_GEMV_OVER_NIC = "scale-up operator: its tiles are too small for one put each"


def load(name: str) -> Machine:
    """The machine of a profile."""
    return machines.from_profile(profile.load(name))


def skip_reason(operator: str, strategy: str, machine: Machine) -> str:
    """Why a combination is not run; empty if it is."""
    if operator == "gemv_all_reduce" and machine.fabric == "nic":
        return NO_GEMV_OVER_NIC
    if strategy == "in_switch" and operator != "gemv_all_reduce":
        return IN_SWITCH_NEEDS
    return ""


def simulate(operator: str, case: dict, strategy: str, machine: Machine) -> dict[str, float]:
    """time_us, limit_us and the counts of one strategy on one case."""
    operation = operations.build(operator, case, machine, fused=strategy == "fused")
    return {
        "time_us": strategies.time(strategy, machine, operation) / US,
        "limit_us": strategies.limit(machine, operation) / US,
        "bytes_read": int(operation.bytes_read()),
        "bytes_sent": int(operation.bytes_sent()),
        "flops": int(operation.flops()),
    }


def timing(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """Timing rows of every strategy for one case on one machine."""
    machine = load(machine_name)
    found = []
    for strategy in ("compute", *strategies.STRATEGIES):
        reason = skip_reason(operator, strategy, machine)
        figures = {} if reason else simulate(operator, case, strategy, machine)
        found.append(rows.timing_row(operator, case, strategy, machine_name, machine.gpus, figures, reason))
    return found


def band(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """Times of compute, bulk and fused at the nominal point and at every corner of the sensitivity box."""
    nominal = load(machine_name)
    if skip_reason(operator, "fused", nominal) or nominal.gpus > BAND_GPUS:
        return []
    found = []
    for link, memory, launch in POINTS:
        machine = nominal.scaled(link, memory, launch)
        for strategy in BAND_STRATEGIES:
            time_us = simulate(operator, case, strategy, machine)["time_us"]
            found.append(
                {
                    "operator": operator,
                    "case": case["case"],
                    "machine": machine_name,
                    "backend": "model",
                    "world_size": machine.gpus,
                    "strategy": strategy,
                    "link_scale": link,
                    "memory_scale": memory,
                    "launch_scale": launch,
                    "time_us": time_us,
                }
            )
    return found


def reductions(band_rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Per case: reduction of execution time by fused against bulk, percent, nominal and over the band."""
    points: dict[tuple, dict[tuple, dict[str, float]]] = {}
    for row in band_rows:
        key = (row["operator"], row["case"], row["machine"], row["world_size"])
        scale = (row["link_scale"], row["memory_scale"], row["launch_scale"])
        points.setdefault(key, {}).setdefault(scale, {})[str(row["strategy"])] = float(row["time_us"])  # type: ignore[arg-type]
    found = []
    for (operator, case, machine, world), by_scale in points.items():
        percent = {scale: 100 * (1 - t["fused"] / t["bulk"]) for scale, t in by_scale.items()}
        nominal = by_scale[POINTS[0]]
        found.append(
            {
                "operator": operator,
                "case": case,
                "machine": machine,
                "backend": "model",
                "world_size": world,
                "bulk_us": nominal["bulk"],
                "fused_us": nominal["fused"],
                "reduction_percent": percent[POINTS[0]],
                "low_percent": min(percent.values()),
                "high_percent": max(percent.values()),
            }
        )
    return found


def jobs() -> Iterator[tuple[str, str, dict]]:
    """(machine, operator, case) of everything there is; single GPUs have nothing to communicate."""
    for name in profile.names():
        if load(name).gpus > 1:
            for operator in operations.OPERATORS:
                for case in rows.cases(operator):
                    yield name, operator, case


def one(job: tuple[str, str, dict]) -> tuple[list[dict], list[dict]]:
    """Timing and band rows of one job (a worker process's unit)."""
    name, operator, case = job
    try:
        return timing(name, operator, case), band(name, operator, case)
    except ModelError as error:
        raise ModelError(f"{name}, {operator}, case {case['case']}: {error}") from None


def run(mapper: Callable) -> dict[str, list[dict]]:
    """Rows of the files `intranode`, `sensitivity` and `reduction`; `mapper(function, jobs, label)` spreads the work."""
    timings, bands = [], []
    for t, b in mapper(one, list(jobs()), "intranode"):
        timings += t
        bands += b
    return {"intranode": timings, "sensitivity": bands, "reduction": reductions(bands)}
