"""Studies by the model: order of the work against skew between ranks, occupancy, link traffic over time, and what each assumption decides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from . import operations, rows, strategies
from .intranode import load
from .kernel import replay
from .machine import US
from .plans import interleaved

OCCUPANCIES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
LATE_US = (0.0, 50.0)  # how late the last rank starts
BINS = 60


@dataclass(frozen=True)
class Where:
    """Machines and operators that the studies run on; the cases are those of the case lists."""

    skew: tuple[tuple[str, str], ...] = (
        ("mi210-2node", "embedding_all_to_all"),
        ("mi210-x4", "embedding_all_to_all"),
        ("h200-x2", "embedding_all_to_all"),
    )
    assumptions: tuple[tuple[str, str], ...] = (
        ("mi210-2node", "embedding_all_to_all"),
        ("mi210-x4", "embedding_all_to_all"),
        ("mi210-x4", "gemv_all_reduce"),
        ("mi210-x4", "gemm_all_to_all"),
    )
    occupancy: tuple[tuple[str, str], ...] = (
        ("mi210-2node", "embedding_all_to_all"),
        ("mi210-x4", "embedding_all_to_all"),
        ("mi210-x4", "gemv_all_reduce"),
    )


def skew(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """End of each rank's kernel under both orders: columns order, late_us, rank, end_us, skew_percent."""
    machine = load(machine_name)
    found = []
    for order in ("remote_first", "oblivious"):
        operation = operations.build(operator, case, machine, fused=True, order=order)
        for late in LATE_US:
            starts = [0.0] * (machine.gpus - 1) + [late * US]
            outcome = replay(machine, operation, machine.transport, starts)
            for rank, end in enumerate(outcome.ends):
                found.append(
                    {
                        "operator": operator,
                        "case": case["case"],
                        "machine": machine_name,
                        "backend": "model",
                        "world_size": machine.gpus,
                        "order": order,
                        "late_us": late,
                        "rank": rank,
                        "end_us": end / US,
                        "skew_percent": 100 * outcome.skew,
                    }
                )
    return found


def occupancy(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """Time against the part of the wave slots in use: columns strategy, occupancy_percent, wgs_per_cu, time_us."""
    nominal = load(machine_name)
    found = []
    for strategy, mode in (("compute", "compute"), ("fused", nominal.transport)):
        for part in OCCUPANCIES:
            fused = strategy == "fused"
            machine = operations.with_occupancy(nominal, operator, part, fused)
            operation = operations.build(operator, case, machine, fused=fused)
            found.append(
                {
                    "operator": operator,
                    "case": case["case"],
                    "machine": machine_name,
                    "backend": "model",
                    "world_size": machine.gpus,
                    "strategy": strategy,
                    "occupancy_percent": 100 * part,
                    "wgs_per_cu": machine.grid(operator, fused) // machine.compute_units,
                    "time_us": replay(machine, operation, mode).time / US,
                }
            )
    return found


def traffic(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """Bytes that rank 0 puts on its links over time, bulk against fused: columns strategy, time_us, link_gbps.

    The bulk collective is alpha of silence, then a steady rate: the model knows no more of it.
    """
    machine = load(machine_name)
    fused_op = operations.build(operator, case, machine, fused=True)
    bulk_op = operations.build(operator, case, machine, fused=False)
    outcome = replay(machine, fused_op, machine.transport)
    compute = replay(machine, bulk_op, "compute").time
    total = compute + machine.collective(bulk_op.collective, bulk_op.collective_bytes)
    alpha = machine.alpha_all_reduce if bulk_op.collective == "all_reduce" else machine.alpha_all_to_all
    passes = 2 if bulk_op.collective == "all_reduce" else 1
    moved = passes * (machine.gpus - 1) / machine.gpus * bulk_op.collective_bytes
    intervals = {
        "fused": outcome.fabric.intervals(0),
        "bulk": [(compute + alpha, total, moved)],
    }
    horizon = max(total, outcome.time)
    width = horizon / BINS
    found = []
    for strategy, spans in intervals.items():
        for index in range(BINS):
            low, high = index * width, (index + 1) * width
            inside = sum(
                size * max(0.0, min(high, end) - max(low, start)) / (end - start) for start, end, size in spans
            )
            found.append(
                {
                    "operator": operator,
                    "case": case["case"],
                    "machine": machine_name,
                    "backend": "model",
                    "world_size": machine.gpus,
                    "strategy": strategy,
                    "time_us": (low + high) / 2 / US,
                    "link_gbps": inside / width / 1e9,
                }
            )
    return found


def assumptions(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """The fused kernel with one assumption changed at a time: columns assumption, fused_us, bulk_us, reduction_percent."""
    nominal = load(machine_name)
    use = nominal.kernels[operator]
    bulk = strategies.time("bulk", nominal, operations.build(operator, case, nominal, fused=False))
    operation = operations.build(operator, case, nominal, fused=True)
    mixed = replace(operation, plans=tuple(interleaved(plan, rank) for rank, plan in enumerate(operation.plans)))
    free = nominal.with_kernel(operator, fused_wgs_per_cu=use.wgs_per_cu)
    variants = {
        "as assumed": (nominal, operation),
        "destinations interleaved": (nominal, mixed),
        "stores of a work-group 4x faster": (replace(nominal, store_rate=4 * nominal.store_rate), operation),
        "both": (replace(nominal, store_rate=4 * nominal.store_rate), mixed),
        "no registers for communication": (free, operations.build(operator, case, free, fused=True)),
    }
    found = []
    for name, (machine, op) in variants.items():
        fused = strategies.time("fused", machine, op)
        found.append(
            {
                "operator": operator,
                "case": case["case"],
                "machine": machine_name,
                "backend": "model",
                "world_size": machine.gpus,
                "assumption": name,
                "bulk_us": bulk / US,
                "fused_us": fused / US,
                "reduction_percent": 100 * (1 - fused / bulk),
            }
        )
    return found


STUDIES = {"skew": skew, "occupancy": occupancy, "traffic": traffic, "assumptions": assumptions}


def jobs(where: Where) -> Iterator[tuple[str, str, str, dict]]:
    """(study, machine, operator, case)."""
    for study, pairs in (
        ("skew", where.skew),
        ("occupancy", where.occupancy),
        ("traffic", where.skew),
        ("assumptions", where.assumptions),
    ):
        for machine, operator in pairs:
            for case in rows.cases(operator):
                yield study, machine, operator, case


def one(job: tuple[str, str, str, dict]) -> tuple[str, list[dict]]:
    """Rows of one job, with the study they belong to (a worker process's unit)."""
    study, machine, operator, case = job
    return study, STUDIES[study](machine, operator, case)


def run(mapper: Callable) -> dict[str, list[dict]]:
    """Rows of the files `skew`, `occupancy`, `traffic` and `assumptions`."""
    found: dict[str, list[dict]] = {study: [] for study in STUDIES}
    for study, rows_ in mapper(one, list(jobs(Where())), "studies"):
        found[study] += rows_
    return found
