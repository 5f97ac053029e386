"""What each rank runs: all arms of one case, or the microbenchmarks; times, checks and the state of the GPU."""

import time
from dataclasses import asdict
from typing import Any

import torch

from .. import operators
from ..cases import Case
from ..ranks import one_line
from ..studies import arms as study_arms
from ..verify.program import compare
from . import arms as all_arms
from . import health, microbench, schedule
from .sampling import Captured, aligner, sample_all

SLOT_BYTES = 16 << 30
WARM_UP_S = 0.3
_UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def _agreed(symm: Any, reason: str) -> str:
    """The first rank's reason to leave an arm out, the same on every rank; "" if none has one."""
    return next((r for r in symm.exchange(reason) if r), "")


def _prepare(symm: Any, make: Any, n_slots: int, n_calls: int | None, stream: Any) -> Captured | str:
    """The arm, warm and captured, or why it cannot run; collective."""
    reason, captured, estimate = "", None, 0.0
    try:
        captured = Captured(make(), n_slots, n_calls or n_slots, stream)
    except (all_arms.Unavailable, ValueError, NotImplementedError, RuntimeError) as error:
        if "CUDA error" in str(error):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if reason := _agreed(symm, reason):
        return reason
    assert captured is not None
    try:
        estimate = captured.estimate_us()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        if "CUDA error" in str(error):
            raise
        reason = one_line(error)[:200]
    if reason := _agreed(symm, reason):
        return reason
    if n_calls is None:
        captured.n_calls = schedule.calls(max(symm.exchange(estimate)), n_slots)
    try:
        captured.capture()
    except RuntimeError as error:
        reason = f"cannot be captured in a graph: {one_line(error)[:160]}"
    return _agreed(symm, reason) or captured


def _occupy(symm: Any, seconds: float) -> None:
    """Keep the GPU busy, so that clocks are up before the first sample."""
    side = torch.randn(4096, 4096, device=symm.device, dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            side @ side
        torch.cuda.synchronize()


def _check(
    bench: all_arms.Bench, arm: all_arms.Arm, captured: Captured, expected: operators.Expected
) -> dict[str, Any]:
    """Replay the arm on poisoned results and compare the last call with the reference; collective."""
    captured.result.fill_(float("nan"))
    torch.cuda.synchronize()
    bench.symm.barrier()
    with torch.cuda.stream(captured.stream):
        captured.graph.replay()
    torch.cuda.synchronize()
    extra = arm.roundings * _UNIT[bench.problem.dtype] * expected.magnitude
    result = arm.view(captured.result)[: len(expected.exact)]
    error, bound, ok = compare(result.reshape(expected.exact.shape), expected.exact, expected.bound + extra)
    return {"max_abs_error": error, "bound": bound, "ok": ok}


def run_case(
    symm: Any,
    operator: str,
    case: Case,
    samples: int,
    eager_samples: int,
    seed: int,
    study: str = "",
    only: tuple[str, ...] = (),
) -> dict[str, Any]:
    """All arms of one case on this rank, or those of a study, or `only` those named.

    Returns: {"arms": {name: {strategy, face, reason | graph, eager, calls, check}}, "health": [before, after], "slots": n,
    "seed": seed}; times are microseconds a call on this rank, in the order of the samples.
    """
    adapter = operators.get(operator)
    problem = adapter.problem(case, symm.world_size)
    counts = adapter.counts(problem, case)
    l2 = torch.cuda.get_device_properties(symm.device).L2_cache_size
    n_slots = schedule.slots(counts["bytes_read"], l2, SLOT_BYTES)
    slots = [adapter.operands(problem, case, symm.rank, seed + slot, symm.device) for slot in range(n_slots)]
    bench = all_arms.Bench(symm, adapter, case, problem, slots)
    stream = torch.cuda.Stream()
    arms = {arm.name: arm for arm in (study_arms.ARMS[study](bench) if study else all_arms.of(bench))}
    arms = {name: arm for name, arm in arms.items() if name in (only or arms)}
    found: dict[str, dict[str, Any]] = {
        n: {"strategy": a.strategy, "face": a.face} | ({"setting": a.setting} if a.setting else {})
        for n, a in arms.items()
    }
    captured: dict[str, Captured] = {}
    for name, arm in arms.items():
        ready = _prepare(symm, arm.make, n_slots, None, stream)
        if isinstance(ready, str):
            found[name]["reason"] = ready
        else:
            captured[name] = ready
            found[name]["calls"] = ready.n_calls
            if (config := getattr(ready.call, "config", None)) is not None:
                found[name]["config"] = asdict(config)
    align = aligner(symm)
    _occupy(symm, WARM_UP_S)
    before = health.read(symm.device.index or 0)
    symm.barrier()
    times = sample_all(captured, schedule.order(list(captured), samples, seed), "graph", align)
    eager = [name for name in captured if arms[name].eager]
    slow = sample_all({n: captured[n] for n in eager}, schedule.order(eager, eager_samples, seed + 1), "eager", align)
    after = health.read(symm.device.index or 0)
    references = {
        stage: adapter.expected(problem, case, symm.rank, seed + n_slots - 1, symm.device, partial=stage == "partial")
        for stage in {arms[n].stage for n in captured}
    }
    for name, one in captured.items():
        check = _check(bench, arms[name], one, references[arms[name].stage])
        found[name] |= {"graph": times[name], "eager": slow.get(name, []), "check": check}
    del captured, slots, bench, references
    torch.cuda.empty_cache()
    return {"arms": found, "health": [asdict(before), asdict(after)], "slots": n_slots, "seed": seed, "counts": counts}


def run_probes(symm: Any, quick: bool, samples: int) -> list[dict[str, Any]]:
    """The microbenchmarks on this rank (`quick`: those that the limits need): probe fields and microseconds a call."""
    bench = microbench.bench(symm)
    stream = torch.cuda.Stream()
    align = aligner(symm)
    _occupy(symm, WARM_UP_S)
    found = []
    for probe in microbench.probes(bench):
        if quick and not probe.quick:
            continue
        ready = _prepare(symm, probe.make, 1, None, stream)
        record: dict[str, Any] = {k: v for k, v in vars(probe).items() if k != "make"}
        if isinstance(ready, str):
            record |= {"reason": ready, "graph": []}
        else:
            record["graph"] = sample_all({probe.case: ready}, [[probe.case]] * samples, "graph", align)[probe.case]
        found.append(record)
    bench.memo.clear()
    torch.cuda.empty_cache()
    return found
