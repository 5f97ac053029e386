"""Studies by the model: order of the work against skew between ranks, occupancy, link traffic over time, and what each assumption decides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from . import operations, rows, strategies
from .intranode import load
from .kernel import replay
from .machine import US, Machine

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
    orders: tuple[tuple[str, str], ...] = (
        ("h200-x4", "embedding_all_to_all"),
        ("h200-x4", "gemm_all_to_all"),
        ("h200-x8", "embedding_all_to_all"),
        ("h200-x8", "gemm_all_to_all"),
        ("mi300x-node", "embedding_all_to_all"),
        ("mi300x-node", "gemm_all_to_all"),
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
    faster = replace(nominal, store_rate=4 * nominal.store_rate)
    free = nominal.with_kernel(operator, fused_wgs_per_cu=nominal.kernels[operator].wgs_per_cu)
    found = orders(machine_name, operator, case)
    for name, machine, order in (
        ("stores of a work-group 4x faster", faster, "remote_first"),
        ("both", faster, "interleaved"),
        ("no registers for communication", free, "remote_first"),
    ):
        if nominal.transport == "peer" or order == "remote_first":
            found.append(_assuming(name, operator, case, nominal, machine, order))
    return found


def orders(machine_name: str, operator: str, case: dict) -> list[dict[str, object]]:
    """What the kernels' order of destinations is worth: the rows of `assumptions` that tell of it.

    Over a NIC, where a slice leaves when its last work-group is done, the kernels have no interleaved order.
    """
    machine = load(machine_name)
    known = {"as assumed": "remote_first"}
    if machine.transport == "peer":
        known["destinations interleaved"] = "interleaved"
    return [_assuming(name, operator, case, machine, machine, order) for name, order in known.items()]


def _assuming(
    name: str, operator: str, case: dict, nominal: Machine, changed: Machine, order: str
) -> dict[str, object]:
    """Bulk on the nominal machine against fused on the changed one."""
    bulk = strategies.time("bulk", nominal, operations.build(operator, case, nominal, fused=False))
    fused = strategies.time("fused", changed, operations.build(operator, case, changed, fused=True, order=order))
    return {
        "operator": operator,
        "case": case["case"],
        "machine": nominal.name,
        "backend": "model",
        "world_size": nominal.gpus,
        "assumption": name,
        "bulk_us": bulk / US,
        "fused_us": fused / US,
        "reduction_percent": 100 * (1 - fused / bulk),
    }


STUDIES = {"skew": skew, "occupancy": occupancy, "traffic": traffic, "assumptions": assumptions, "orders": orders}
FILES = {**{study: study for study in STUDIES}, "orders": "assumptions"}  # where the rows of each study go


def jobs(where: Where) -> Iterator[tuple[str, str, str, dict]]:
    """(study, machine, operator, case)."""
    for study, pairs in (
        ("skew", where.skew),
        ("occupancy", where.occupancy),
        ("traffic", where.skew),
        ("assumptions", where.assumptions),
        ("orders", where.orders),
    ):
        for machine, operator in pairs:
            for case in rows.cases(operator):
                yield study, machine, operator, case


def one(job: tuple[str, str, str, dict]) -> tuple[str, list[dict]]:
    """Rows of one job, with the file they belong to (a worker process's unit)."""
    study, machine, operator, case = job
    return FILES[study], STUDIES[study](machine, operator, case)


def run(mapper: Callable) -> dict[str, list[dict]]:
    """Rows of the files `skew`, `occupancy`, `traffic` and `assumptions`."""
    found: dict[str, list[dict]] = {name: [] for name in FILES.values()}
    for name, rows_ in mapper(one, list(jobs(Where())), "studies"):
        found[name] += rows_
    return found
