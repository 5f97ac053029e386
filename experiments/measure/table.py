"""From what the ranks report to tidy rows, and the short table that a run ends with. No torch."""

from statistics import median
from typing import Any

from ..cases import Case
from .limits import Rates
from .schedule import Health, suspect

MODES = ("graph", "eager")


def over_ranks(per_rank: list[list[float]]) -> list[float]:
    """The slowest rank of each sample: a collective is over when its last rank is."""
    return [max(values) for values in zip(*per_rank, strict=True)]


def case_rows(
    operator: str, case: Case, machine: str, reports: list[dict[str, Any]], rates: Rates
) -> list[dict[str, Any]]:
    """Rows of one case from the reports of all ranks (`program.run_case`), raw samples one a row."""
    counts = {k: max(r["counts"][k] for r in reports) for k in ("bytes_read", "bytes_sent", "flops")}
    matrix = operator == "gemm_all_to_all"
    limits = {
        "result": rates.limit_us(**counts, dtype=case["dtype"], matrix=matrix),
        "partial": rates.limit_us(counts["bytes_read"], 0, counts["flops"], case["dtype"], matrix),
    }
    doubts = [suspect(*(Health(**h) for h in r["health"])) for r in reports]
    doubt = next((f"rank {rank}: {d}" for rank, d in enumerate(doubts) if d), "")
    rows = []
    for name, arm in reports[0]["arms"].items():
        alone = arm["strategy"] == "compute"
        base = {
            "operator": operator, "case": case["case"], "arm": name, "strategy": arm["strategy"], "face": arm["face"],
            "mode": "graph", "backend": "gpu", "machine": machine, "world_size": len(reports), "dtype": case["dtype"],
            "limit_us": limits["partial" if alone else "result"], **counts, "bytes_sent": 0 if alone else counts["bytes_sent"],
        }  # fmt: skip
        if "reason" in arm:
            rows.append(base | {"status": "missing", "reason": arm["reason"]})
            continue
        wrong = [
            (rank, r["arms"][name]["check"]) for rank, r in enumerate(reports) if not r["arms"][name]["check"]["ok"]
        ]
        if wrong:
            rank, check = wrong[0]
            text = f"wrong result on rank {rank}: error {check['max_abs_error']:.3g}, bound {check['bound']:.3g}"
            rows.append(base | {"status": "failed", "reason": text})
            continue
        for mode in MODES:
            for sample, time_us in enumerate(over_ranks([r["arms"][name][mode] for r in reports])):
                status = {"status": "suspect" if doubt else "ok", "reason": doubt}
                rows.append(base | {"mode": mode, "sample": sample, "time_us": time_us} | status)
    return rows


def probe_rows(operator: str, machine: str, reports: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of the microbenchmarks; `time_us` is of one thing (a call divided by the launches or flags in it)."""
    rows = []
    for probes in zip(*reports, strict=True):
        probe = probes[0]
        base = {
            "operator": operator, "case": probe["case"], "arm": probe["arm"], "strategy": "microbenchmark", "face": "none",
            "mode": "graph", "backend": "gpu", "machine": machine, "world_size": len(reports), "dtype": probe["dtype"],
            "bytes_read": probe["bytes_read"], "bytes_sent": probe["bytes_sent"], "flops": probe["flops"],
        }  # fmt: skip
        if "reason" in probe:
            rows.append(base | {"status": "missing", "reason": probe["reason"]})
            continue
        for sample, time_us in enumerate(over_ranks([p["graph"] for p in probes])):
            rows.append(base | {"sample": sample, "time_us": time_us / probe["per"], "status": "ok", "reason": ""})
    return rows


def failed_case(operator: str, case: Case, machine: str, world_size: int, reason: str) -> dict[str, Any]:
    """The row of a case that gave no times: its ranks died."""
    return {
        "operator": operator, "case": case["case"], "arm": "all", "strategy": "all", "face": "none", "mode": "graph",
        "backend": "gpu", "machine": machine, "world_size": world_size, "dtype": case["dtype"], "status": "failed",
        "reason": reason,
    }  # fmt: skip


def medians(rows: list[dict[str, Any]], mode: str = "graph") -> dict[str, dict[str, float]]:
    """Median microseconds by case and arm, of rows that have a time."""
    times: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["mode"] == mode and row.get("time_us") not in (None, ""):
            times.setdefault(row["case"], {}).setdefault(row["arm"], []).append(float(row["time_us"]))
    return {case: {arm: median(values) for arm, values in arms.items()} for case, arms in times.items()}


def _best(arms: dict[str, float], wanted: set[str]) -> tuple[str, float]:
    return min(((a, t) for a, t in arms.items() if a in wanted), key=lambda at: at[1], default=("-", float("nan")))


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """One line a case: limit, best fused, own compute, best library compute, best arm that is not fused; all in us."""
    of: dict[str, set[str]] = {}
    for row in rows:
        of.setdefault(row["strategy"], set()).add(row["arm"])
    fused, compute = of.get("fused", set()), of.get("compute", set())
    others = set().union(*(arms for strategy, arms in of.items() if strategy not in ("fused", "compute", "all")))
    limits: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for row in rows:
        if row.get("limit_us") not in (None, ""):
            limits[row["strategy"] == "compute"][row["case"]] = float(row["limit_us"])
    lines = [
        f"{'case':36} {'limit':>8} {'fused':>8} {'own':>8} {'library':>8} {'best other':>10}  library arm, other arm"
    ]
    for case, arms in medians(rows).items():
        library, other = _best(arms, compute - {"own"}), _best(arms, others)
        own = arms.get("own", float("nan"))
        lines.append(
            f"{case:36.36} {limits[False].get(case, float('nan')):8.1f} {_best(arms, fused)[1]:8.1f} {own:8.1f} {library[1]:8.1f} {other[1]:10.1f} "
            f"{100 * limits[True].get(case, float('nan')) / own:15.0f}  "
            f"{library[0]}, {other[0]}"
        )
    return lines
