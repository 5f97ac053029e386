"""How each kind of claim is judged. A checker takes the claim and the evidence, and answers with one verdict.

Emulator and model rows never decide about measured time: `faster` reads rows of backend gpu only.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import compare, stats
from .evidence import Evidence
from .verdicts import Status, Verdict, not_evaluated

if TYPE_CHECKING:
    from .claims import Claim

NOT_BUILT = "not built yet"
Checker = Callable[..., Verdict]


def _size_matches(claim: "Claim", found: float, *names: str) -> bool:
    return abs(found - claim.value(*names)) <= claim.tolerance["points"]


def faster(claim: "Claim", evidence: Evidence, operator: str, recorded: bool = False) -> Verdict:
    """Fused against the vendor's library: intervals of the paired ratio entirely below 1 in enough cases; then the size."""
    frame = evidence.recorded if recorded else evidence.measured
    if frame is None:
        return not_evaluated(f"needs {claim.needs}")
    pairs = compare.pairs(frame, operator, vendor=True)
    if not pairs:
        return not_evaluated(f"no measured rows of {operator} with a vendor baseline")
    cases = len(pairs)
    wins, losses = sum(p.faster for p in pairs), sum(p.slower for p in pairs)
    mean = stats.reduction_percent(stats.geometric_mean([p.ratio.value for p in pairs]).value)
    best = compare.pairs(frame, operator, vendor=False)
    against = stats.reduction_percent(stats.geometric_mean([p.ratio.value for p in best]).value)
    machine = ", ".join(sorted(set(frame["machine"])))
    detail = (
        f"faster in {wins} and slower in {losses} of {cases} cases; geometric mean {mean:.0f} %, most {max(p.reduction for p in pairs):.0f} % lower than the"
        f" vendor's library; {against:.0f} % against the best baseline of each case"
    )
    source = f"gpu, {machine}"
    if losses >= cases / 2:
        return Verdict(Status.CONTRADICTED, detail, source)
    if wins < claim.tolerance["share_of_cases"] * cases:
        return Verdict(Status.INCONCLUSIVE, detail, source)
    same_size = machine == claim.platform and _size_matches(claim, mean, "mean", "typical")
    return Verdict(Status.REPRODUCED if same_size else Status.TREND, detail, source)


def two_nodes(claim: "Claim", evidence: Evidence, recorded: bool = False) -> Verdict:
    """Scale-out time: no machine with two nodes was available to this artifact."""
    return not_evaluated(f"needs {claim.needs}")


def no_experiment(claim: "Claim", evidence: Evidence, recorded: bool = False, reason: str = NOT_BUILT) -> Verdict:
    """A claim whose measurement does not exist."""
    return not_evaluated(reason)


def _model(evidence: Evidence, name: str, **where: Any) -> pd.DataFrame:
    frame = evidence.model.get(name)
    if frame is None:
        return pd.DataFrame()
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def model_reduction(claim: "Claim", evidence: Evidence, operator: str, machine: str) -> Verdict:
    """The timing model's reduction: direction in enough cases, then whether the paper's value lies in the mean's band or near it."""
    rows = _model(evidence, "reduction", operator=operator, machine=machine)
    if rows.empty:
        return not_evaluated("no model rows")
    wins = int((rows["reduction_percent"] > 0).sum())
    mean, low, high = (float(rows[c].mean()) for c in ("reduction_percent", "low_percent", "high_percent"))
    detail = f"faster in {wins} of {len(rows)} cases; mean {mean:.0f} % lower, {low:.0f} to {high:.0f} % over the assumed constants"
    source = f"model, {machine}"
    if wins < claim.tolerance["share_of_cases"] * len(rows):
        return Verdict(Status.MODEL_DISAGREES, detail, source)
    paper = claim.value("mean", "typical")
    same = low <= paper <= high or _size_matches(claim, mean, "mean", "typical")
    return Verdict(Status.MODEL_AGREES if same else Status.MODEL_AGREES_SIZE, detail, source)


def scale_out(claim: "Claim", evidence: Evidence, workload: str, topology: str, nodes: int) -> Verdict:
    """The simulated iteration: direction, size, and the range over the sweep around the workload."""
    where = {"workload": workload, "topology": topology, "scope": "iteration", "scaling": "weak"}
    rows = _model(evidence, "scaleout_reduction", **where, nodes=nodes, scenario="none")
    if rows.empty:
        return not_evaluated("no simulation rows")
    found = float(rows["reduction_percent"].iloc[0])
    sweep = _model(evidence, "scaleout_sweep", **where, nodes=nodes)
    spread = (
        ""
        if sweep.empty
        else f"; {sweep['reduction_percent'].min():.0f} to {sweep['reduction_percent'].max():.0f} % over the workload sweep"
    )
    detail = f"{found:.0f} % lower at {nodes} nodes{spread}"
    source = f"model, {rows['machine'].iloc[0]}, {topology}"
    if found <= 0:
        return Verdict(Status.MODEL_DISAGREES, detail, source)
    same = _size_matches(claim, found, "iteration")
    return Verdict(Status.REPRODUCED_SIMULATED if same else Status.MODEL_AGREES_SIZE, detail, source)


def _verified(evidence: Evidence, operators: list[str]) -> tuple[pd.DataFrame, Verdict | None]:
    """This run's rows of the fused operators; a verdict already if some are missing or wrong."""
    rows = evidence.verify
    if rows is None:
        return pd.DataFrame(), not_evaluated("no verification rows")
    # "fused.two_phase", "fused.peer", ...; the staged variant copies on the receiver's side, so it is not the fused operator.
    rows = rows[rows["strategy"].str.startswith("fused") & (rows["transport"] != "staged")]
    absent = [o for o in operators if o not in set(rows["operator"])]
    if absent:
        return rows, not_evaluated(f"{NOT_BUILT}: no verification of {', '.join(absent)}")
    rows = rows[rows["operator"].isin(operators)]
    wrong = rows[rows["status"] == "failed"]
    if len(wrong):
        first = wrong.iloc[0]
        return rows, Verdict(
            Status.CONTRADICTED,
            f"{len(wrong)} wrong results, first {first['operator']} {first['case']} rank {first['rank']}",
            evidence.backend,
        )
    if (rows["status"] != "ok").any():
        return rows, Verdict(
            Status.INCONCLUSIVE, f"{int((rows['status'] != 'ok').sum())} results are missing", evidence.backend
        )
    return rows, None


def zero_copy(claim: "Claim", evidence: Evidence, operators: list[str]) -> Verdict:
    """Right results over the peer transport, written by remote stores from inside the kernel."""
    rows, early = _verified(evidence, operators)
    if early:
        return early
    rows = rows[(rows["transport"] == "peer") & (rows["world_size"] > 1)]
    absent = [o for o in operators if o not in set(rows["operator"])]
    if absent:
        return not_evaluated(f"no case of {', '.join(absent)} with peers")
    counted = rows[rows["remote_stores"].notna()]
    if counted.empty:
        return not_evaluated(f"remote stores are counted in the emulator only, not on {evidence.backend}")
    stores = counted.groupby(["operator", "case"])["remote_stores"].sum()
    idle = int((stores == 0).sum())
    # A case may have nothing to send (empty batch): all its ranks then store nothing, but most cases must store.
    detail = f"{rows['case'].nunique()} cases right, {int(stores.sum())} remote stores delivered, {idle} cases with nothing to send"
    status = Status.REPRODUCED if idle < len(stores) / 2 else Status.CONTRADICTED
    return Verdict(status, detail, evidence.backend)


def operators(claim: "Claim", evidence: Evidence, operators: list[str]) -> Verdict:
    """Registered with two faces each, compiled for every target, and right."""
    rows, early = _verified(evidence, operators)
    if early:
        return early
    if evidence.operators is None or evidence.resources is None:
        return not_evaluated(
            "no rows of " + ("the registered operators" if evidence.operators is None else "the build")
        )
    faces = evidence.operators.groupby("operator")["face"].agg(set)
    lacking = [o for o in operators if faces.get(o, set()) < {"out", "owned"}]
    build = evidence.resources[evidence.resources["operator"].isin(operators)]
    # A kernel that needs an optional library is "missing" where that is not installed: it speaks neither for nor against.
    tried = build[build["status"] != "missing"]
    failed = tried[tried["status"] != "ok"]
    unbuilt = [o for o in operators if o not in set(tried["operator"])]
    targets = ", ".join(sorted(set(build["target"])))
    detail = (
        f"{rows['case'].nunique()} cases right; {len(tried) - len(failed)} of {len(tried)} kernels built for {targets}"
    )
    if lacking or unbuilt or len(failed):
        return Verdict(
            Status.CONTRADICTED,
            f"{detail}; without both faces: {', '.join(lacking) or 'none'}; not built: {', '.join(unbuilt) or 'none'}",
            evidence.backend,
        )
    return Verdict(Status.REPRODUCED, detail, evidence.backend)


def link_traffic(claim: "Claim", evidence: Evidence) -> Verdict:
    """Peak and duration of the traffic on a rank's links, fused against bulk, case by case."""
    rows = _model(evidence, "traffic")
    if rows.empty:
        return not_evaluated("no model rows")
    lower = longer = cases = 0
    peaks = []
    for _, group in rows.groupby(["machine", "operator", "case"]):
        by = {s: g for s, g in group.groupby("strategy")}
        if {"fused", "bulk"} <= set(by):
            peak = {s: float(g["link_gbps"].max()) for s, g in by.items()}
            busy = {s: int((g["link_gbps"] > 0.01 * g["link_gbps"].max()).sum()) for s, g in by.items()}
            cases += 1
            lower += peak["fused"] < peak["bulk"]
            longer += busy["fused"] > busy["bulk"]
            peaks.append(peak["fused"] / peak["bulk"])
    if not cases:
        return not_evaluated("no model rows of both strategies")
    detail = f"lower peak in {lower} and longer traffic in {longer} of {cases} cases; median peak {float(np.median(peaks)):.2f} of bulk's"
    need = claim.tolerance["share_of_cases"] * cases
    return Verdict(
        Status.MODEL_AGREES if lower >= need and longer >= need else Status.MODEL_DISAGREES,
        detail,
        "model, " + ", ".join(sorted(set(rows["machine"]))),
    )


def order_skew(claim: "Claim", evidence: Evidence, machine: str, operator: str) -> Verdict:
    """Skew between the ends of the ranks' kernels, all ranks started together: both orders, median over cases."""
    rows = _model(evidence, "skew", machine=machine, operator=operator, late_us=0.0)
    rows = rows[rows["rank"] == 0] if not rows.empty else rows
    if rows.empty:
        return not_evaluated("no model rows")
    table = rows.pivot_table(index="case", columns="order", values="skew_percent")
    wins = int((table["remote_first"] < table["oblivious"]).sum())
    first, oblivious = float(table["remote_first"].median()), float(table["oblivious"].median())
    detail = f"less skew with remote-first order in {wins} of {len(table)} cases; median {oblivious:.1f} % against {first:.1f} %"
    if wins < claim.tolerance["share_of_cases"] * len(table):
        return Verdict(Status.MODEL_DISAGREES, detail, f"model, {machine}")
    same = _size_matches(claim, oblivious, "oblivious") and _size_matches(claim, first, "remote_first")
    return Verdict(Status.MODEL_AGREES if same else Status.MODEL_AGREES_SIZE, detail, f"model, {machine}")


def occupancy_drops(resources: pd.DataFrame, target: str) -> pd.DataFrame:
    """Theoretical occupancy of the compute-only and of the lowest fused kernel: columns operator, dtype, compute, fused, drop_points."""
    rows = resources[(resources["target"] == target) & (resources["status"] == "ok")]
    table = rows.pivot_table(index=["operator", "dtype"], columns="role", values="occupancy", aggfunc="min").mul(100)
    if not {"compute", "fused"} <= set(table.columns):
        return pd.DataFrame(columns=["operator", "dtype", "compute", "fused", "drop_points"])
    table = table.dropna(subset=["compute", "fused"])
    return table.assign(drop_points=table["compute"] - table["fused"]).reset_index()


def occupancy(claim: "Claim", evidence: Evidence, target: str) -> Verdict:
    """Whether fused kernels have lower theoretical occupancy, operator by operator and dtype by dtype."""
    if evidence.resources is None:
        return not_evaluated("no build rows")
    table = occupancy_drops(evidence.resources, target)
    if table.empty:
        return not_evaluated(f"{NOT_BUILT}: no fused and compute kernels for {target}")
    lower, higher, pairs = int((table["drop_points"] > 0).sum()), int((table["drop_points"] < 0).sum()), len(table)
    drop = float(table["drop_points"].max())
    detail = f"lower in {lower}, equal in {pairs - lower - higher}, higher in {higher} of {pairs} pairs of kernels; largest drop {drop:.1f} points"
    source = f"build, {target}"
    if lower == 0:
        return Verdict(Status.CONTRADICTED, detail, source)
    if lower < pairs / 2:
        return Verdict(Status.INCONCLUSIVE, detail, source)
    same = _size_matches(claim, float(table["drop_points"].median()), "occupancy")
    return Verdict(Status.REPRODUCED if same else Status.TREND, detail, source)


def occupancy_cost(claim: "Claim", evidence: Evidence, machine: str, operator: str) -> Verdict:
    """Whether, by the model, a fused kernel with the paper's occupancy still takes less time than bulk at full occupancy."""
    rows = _model(evidence, "occupancy", machine=machine, operator=operator, strategy="fused")
    bulk = _model(evidence, "reduction", machine=machine, operator=operator)
    if rows.empty or bulk.empty:
        return not_evaluated("no model rows")
    reduced = rows[np.isclose(rows["occupancy_percent"].astype(float), 100 - claim.value("occupancy"))]
    table = reduced.set_index("case")["time_us"].to_frame("fused").join(bulk.set_index("case")["bulk_us"], how="inner")
    if table.empty:
        return not_evaluated("no model rows at the paper's occupancy")
    wins = int((table["fused"] < table["bulk_us"]).sum())
    detail = f"with that occupancy fused takes less time than bulk in {wins} of {len(table)} cases"
    return Verdict(
        Status.MODEL_AGREES if wins >= 0.8 * len(table) else Status.MODEL_DISAGREES, detail, f"model, {machine}"
    )


CHECKERS: dict[str, Checker] = {
    f.__name__: f
    for f in (
        faster, two_nodes, no_experiment, model_reduction, scale_out, zero_copy, operators, link_traffic, order_skew, occupancy, occupancy_cost,
    )
}  # fmt: skip
