"""`python -m experiments.tune`: search launch configurations on the GPUs there are and save the best a GPU model and problem.

Every candidate is timed like an arm (CUDA graphs, rotated buffers) after it gave the right result once. The fused kernel is
launched cooperatively also on a single GPU, so that no configuration is chosen whose work-groups are not all resident.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from . import cases, operators, ranks
from .errors import ExperimentError, require
from .measure import run as measure_run
from .measure import schedule
from .measure.arms import Bench
from .measure.program import SLOT_BYTES
from .measure.sampling import Captured, aligner, sample_all
from .ranks import one_line
from .verify.program import compare

ROLES = ("compute", "fused")
SAMPLES = 7
COMPILERS = 12  # threads
# Cases that are tuned: the others take the nearest one's choice.
TUNED = {
    "gemv_all_reduce": (
        "llama3-70b.o.tp8.b1", "llama3-70b.o.tp2.b1", "llama3-70b.down.tp2.b1", "llama3-405b.down.tp4.b1",
        "llama3-70b.o.tp8.b4", "llama3-70b.o.tp2.b4", "llama3-70b.down.tp2.b4", "llama3-405b.down.tp4.b8",
        "llama3-70b.o.tp4.b1.fp32",
    ),
    "embedding_all_to_all": (
        "b1024.t16.l32.d128.fp32", "b1024.t16.l32.d128.bf16", "b4096.t64.l8.d128.fp32", "b4096.t64.l8.d128.bf16",
        "b2048.t32.l64.d256.bf16", "b2048.t32.l64.d256.fp32", "b2048.t32.l70.d92.fp32", "dlrm-criteo.b32768.fp32",
        "dlrm-rmc2.b4096.fp32", "dlrm-rmc3.b4096.fp32",
    ),
    "gemm_all_to_all": (
        "square.4k.even", "deepseek-v3.2k.even", "deepseek-v3.8k.even", "mixtral-8x7b.8k.even", "qwen3-235b.16k.even",
        "qwen3-30b.8k.even",
    ),
}  # fmt: skip
# (block_m, block_k, warps, work-groups an SM, stages)
_GEMV_ONE = ((4, 1024, 2, 16, 1), (4, 1024, 2, 8, 1), (4, 1024, 4, 8, 1), (4, 2048, 4, 4, 1), (4, 2048, 4, 8, 1), (8, 1024, 4, 4, 1),
             (2, 2048, 4, 8, 1), (2, 1024, 2, 16, 1), (4, 1024, 4, 4, 3), (8, 512, 4, 4, 1), (4, 2048, 8, 4, 1), (2, 4096, 8, 4, 1),
             (1, 4096, 4, 8, 1), (8, 1024, 8, 4, 1), (4, 1024, 4, 2, 3), (4, 2048, 8, 2, 1), (2, 2048, 4, 4, 1),
             (2, 4096, 8, 2, 1), (4, 4096, 8, 2, 1), (4, 1024, 4, 4, 1))  # fmt: skip
_GEMV_SEVERAL = ((64, 128, 4, 2, 4), (64, 256, 4, 1, 4), (64, 128, 4, 2, 6), (32, 256, 4, 2, 4), (16, 512, 4, 2, 3), (32, 128, 4, 4, 4),
                 (16, 256, 4, 4, 4), (64, 128, 4, 3, 3), (128, 128, 8, 1, 4), (16, 256, 2, 4, 4))  # fmt: skip
# (block_b, unroll, warps, work-groups an SM)
_EMBEDDING = ((1, 8, 1, 31), (1, 4, 1, 31), (2, 4, 1, 31), (4, 4, 1, 31), (4, 4, 4, 8), (8, 4, 4, 8), (4, 8, 4, 8), (8, 8, 4, 8), (16, 4, 4, 8),
              (1, 16, 1, 31), (2, 8, 2, 16), (4, 8, 2, 16), (4, 2, 1, 31), (8, 4, 8, 4))  # fmt: skip
# (block_m, block_n, block_k, warps, stages, group_m)
_GEMM = ((128, 256, 64, 8, 4, 16), (128, 256, 64, 8, 3, 8), (128, 128, 64, 4, 5, 8), (128, 128, 64, 8, 4, 8), (128, 256, 64, 8, 3, 16),
         (256, 128, 64, 8, 3, 8), (64, 256, 64, 4, 4, 8), (128, 128, 64, 4, 4, 16), (64, 128, 64, 4, 5, 8))  # fmt: skip


# Of the warp slots, what a fused kernel tuned on one GPU may take: with more ranks it needs more registers, and must fit.
WAITING_PART = {"gemv_all_reduce": 4, "embedding_all_to_all": 2, "gemm_all_to_all": 4}


def candidates(operator: str, role: str, problem: Any, symm: Any) -> list[Any]:
    """Configurations worth trying, the default first."""
    module = __import__(f"kernels.{operator}", fromlist=["Config"])
    base = module.default_config(problem, symm, role)
    sms = torch.cuda.get_device_properties(symm.device).multi_processor_count
    found = [base]
    if operator == "gemv_all_reduce":
        names = ("block_m", "block_k", "num_warps", "grid", "num_stages")
        table = _GEMV_ONE if problem.batch == 1 else _GEMV_SEVERAL
        algorithms = module.ALGORITHMS if problem.world_size > 1 else (base.algorithm,)
        for (m, k, warps, per_sm, stages), algorithm in product(table, algorithms):
            values = dict(zip(names, (m, k, warps, per_sm * sms, stages), strict=True))
            found.append(replace(base, algorithm=algorithm, **values))
    elif operator == "embedding_all_to_all":
        for b, unroll, warps, per_sm in _EMBEDDING:
            grid = min(per_sm * sms, 4096)
            found.append(replace(base, block_b=b, unroll=unroll, num_warps=warps, grid=grid, transport="peer"))
    else:
        for m, n, k, warps, stages, group in _GEMM:
            values = {
                "block_m": m,
                "block_n": n,
                "block_k": k,
                "num_warps": warps,
                "num_stages": stages,
                "group_m": group,
            }
            found.append(replace(base, **values, grid=sms, transport="peer"))
    if role == "fused" and problem.world_size > 2:  # behind the others, for a limit of time to leave out first
        found += [replace(c, order="interleaved") for c in found if getattr(c, "algorithm", "") != "one_shot"]
    unique = list(dict.fromkeys(found))
    part = WAITING_PART[operator] if role == "fused" and problem.world_size == 1 else 1
    return [c for c in unique if c.grid <= symm.max_resident(c.num_warps) // part]


class Always:
    """A rank whose kernels are all launched cooperatively, as they would be among several: residency is checked by the driver."""

    def __init__(self, symm: Any):
        self._symm = symm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._symm, name)

    def launch(
        self,
        kernel: Any,
        grid: int,
        args: dict[str, Any],
        *,
        num_warps: int = 4,
        num_stages: int = 1,
        waits: bool = True,
    ) -> None:
        kernel[(grid,)](**args, num_warps=num_warps, num_stages=num_stages, launch_cooperative_grid=True)


class Compiling:
    """A rank whose launches only compile, so that many candidates are compiled side by side before the first is timed."""

    def __init__(self, symm: Any, cooperative: bool):
        self._symm, self._cooperative = symm, cooperative

    def __getattr__(self, name: str) -> Any:
        return getattr(self._symm, name)

    def launch(
        self,
        kernel: Any,
        grid: int,
        args: dict[str, Any],
        *,
        num_warps: int = 4,
        num_stages: int = 1,
        waits: bool = True,
    ) -> None:
        options = {"num_warps": num_warps, "num_stages": num_stages, "launch_cooperative_grid": self._cooperative}
        kernel.warmup(**args, **options, grid=(grid,))


def compile_all(
    operator: str, role: str, symm: Any, problem: Any, slots: list[Any], out: torch.Tensor, configs: list[Any]
) -> None:
    """Compile the candidates in parallel. One rank only: what operators agree on between ranks has an order."""
    if symm.world_size > 1:
        return
    rank = Compiling(symm, cooperative=role == "fused")

    def one(config: Any) -> None:
        # What does not compile is refused with its reason when it is tried.
        with contextlib.suppress(Exception):
            _call(operator, role, rank, problem, slots, out, config)(0)

    one(configs[0])
    with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool:
        list(pool.map(one, configs[1:]))


def _call(operator: str, role: str, symm: Any, problem: Any, slots: list[Any], out: torch.Tensor, config: Any) -> Any:
    module = __import__(f"kernels.{operator}", fromlist=["fused"])
    function = module.fused if role == "fused" else module.compute

    def call(slot: int) -> torch.Tensor:
        operands = slots[slot]
        if operator == "gemv_all_reduce":
            return function(symm, problem, operands["weight"], operands["x"], out, config=config)
        return function(symm, problem, next(iter(operands.values())), out, config)

    return call


def tune_case(symm: Any, operator: str, case: cases.Case, role: str, deadline_s: float) -> dict[str, Any]:
    """Best configuration of one case on this rank's machine: collective; every rank returns the same."""
    adapter = operators.get(operator)
    problem = adapter.problem(case, symm.world_size)
    seed = measure_run.case_seed(case)
    l2 = torch.cuda.get_device_properties(symm.device).L2_cache_size
    n_slots = schedule.slots(adapter.counts(problem, case)["bytes_read"], l2, SLOT_BYTES)
    slots = [adapter.operands(problem, case, symm.rank, seed + s, symm.device) for s in range(n_slots)]
    expected = adapter.expected(problem, case, symm.rank, seed + n_slots - 1, symm.device, partial=role == "compute")
    shape = adapter.out_shape(problem, symm.rank) if role == "fused" else tuple(expected.exact.shape)
    bench = Bench(symm, adapter, case, problem, slots)
    out = (
        bench.symmetric("out", shape, problem.dtype)
        if role == "fused"
        else torch.empty(shape, dtype=problem.dtype, device=symm.device)
    )
    rank = Always(symm) if role == "fused" else symm
    stream, align = torch.cuda.Stream(), aligner(symm)
    end = time.monotonic() + deadline_s
    tried: list[tuple[float, Any]] = []
    refused: list[str] = []
    configs = candidates(operator, role, problem, symm)
    compile_all(operator, role, symm, problem, slots, out, configs)
    for config in configs:
        if min(symm.exchange(end - time.monotonic())) < 0:
            break
        captured = Captured(_call(operator, role, rank, problem, slots, out, config), n_slots, n_slots, stream)
        reason = ""
        try:
            out.fill_(float("nan"))
            result = captured.call(n_slots - 1)
            torch.cuda.synchronize()
            if not compare(result[: len(expected.exact)], expected.exact, expected.bound)[2]:
                reason = f"{config}: wrong result"
        except (RuntimeError, ValueError, torch.OutOfMemoryError) as error:
            if "illegal" in str(error):
                raise
            reason = f"{config}: {one_line(error)[:120]}"
        except Exception as error:  # noqa: BLE001 - Triton's OutOfResources is no RuntimeError in every version
            reason = f"{config}: {one_line(error)[:120]}"
        if any(symm.exchange(reason)):
            refused.append(reason)
            continue
        captured.n_calls = schedule.calls(max(symm.exchange(captured.estimate_us())), n_slots)
        captured.capture()
        times = sample_all({"it": captured}, [["it"]] * SAMPLES, "graph", align)["it"]
        tried.append((max(symm.exchange(median(times))), config))
    require(bool(tried), f"configurations of {operator} for {case['case']}", refused[:1], "one that runs")
    best_us, best = min(tried, key=lambda t: t[0])
    module = __import__(f"kernels.{operator}", fromlist=["tuning_key"])
    return {
        "operator": operator,
        "role": role,
        "case": case["case"],
        "problem": module.tuning_key(problem),
        # How ranks talk cannot be tuned where there is one.
        "config": {k: v for k, v in asdict(best).items() if symm.world_size > 1 or k != "algorithm"},
        "resident": symm.max_resident(best.num_warps),
        "time_us": round(best_us, 3),
        "default_us": round(tried[0][0], 3),
        "tried": len(tried),
        "refused": refused,
    }


def known_cases(path: Path, operator: str, world_size: int) -> set[tuple[str, ...]]:
    """(role, case) of an operator that a file holds for a world size."""
    old = json.loads(path.read_text())["entries"] if path.is_file() else []
    return {
        (e["role"], e["case"]) for e in old if (e["operator"], e["problem"]["world_size"]) == (operator, world_size)
    }


def merge(path: Path, device: str, new: list[dict[str, Any]]) -> None:
    """Put entries into the file of a GPU model, in place of those of the same operator, role, case and world size."""
    old = json.loads(path.read_text())["entries"] if path.is_file() else []

    def key(entry: dict[str, Any]) -> tuple[Any, ...]:
        return entry["operator"], entry["role"], entry["case"], entry["problem"]["world_size"]

    kept = {key(e): e for e in old} | {key(e): {k: v for k, v in e.items() if k != "refused"} for e in new}
    lines = ",\n  ".join(json.dumps(kept[k]) for k in sorted(kept))
    path.write_text(f'{{"device": {json.dumps(device)}, "entries": [\n  {lines}\n]}}\n')


def tune(
    source: Any,
    operator: str,
    roles: tuple[str, ...],
    clock: measure_run.Clock,
    known: set[tuple[str, ...]],
    report: Any = print,
) -> list[dict[str, Any]]:
    """Entries of all tuned cases of an operator that the clock leaves time for and that are not `known` (role, case)."""
    found = []
    for role in roles:
        for case in cases.timing(operator):
            if case["case"] not in TUNED[operator] or (role, case["case"]) in known:
                continue
            if source.agree(clock.left() < 10):
                return found
            entry = source.run(tune_case, operator, case, role, max(5.0, clock.left() - 5))[0]
            found.append(entry)
            report(
                f"tuned {operator} {role} {case['case']}: {entry['time_us']} us (default {entry['default_us']}), "
                f"{entry['tried']} tried, {len(entry['refused'])} refused; {entry['config']}",
                flush=True,
            )
            for reason in entry["refused"][:2]:
                report(f"  refused: {reason}", flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m experiments.tune", description=__doc__.splitlines()[0])
    p.add_argument("--operator", action="append", choices=cases.OPERATORS)
    p.add_argument("--role", action="append", choices=ROLES)
    p.add_argument("--world", type=int)
    p.add_argument("--time-limit", type=float, default=480.0, metavar="SECONDS")
    p.add_argument("--again", action="store_true", help="tune also what the file holds already")
    p.add_argument("--out", type=Path, help="JSON file (default: that of this GPU model in kernels/tuning)")
    options = p.parse_args(arguments)
    from kernels import tuning

    clock = measure_run.Clock(options.time_limit)
    possible = ranks.world_sizes("gpu")
    require(bool(possible), "GPUs", 0, "1 or more")
    world = options.world or max(possible)
    require(world in possible, "--world", world, ", ".join(map(str, possible)))
    device = torch.cuda.get_device_name(0)
    path = options.out or tuning.file_of(device)
    found: list[dict[str, Any]] = []
    with measure_run.open_source(world) as source:
        for operator in options.operator or cases.OPERATORS:
            known = set() if options.again else known_cases(path, operator, world)
            found += tune(source, operator, tuple(options.role or ROLES), clock, known)
            if source.writes:
                path.parent.mkdir(parents=True, exist_ok=True)
                merge(path, device, found)
    print(f"tune: {len(found)} entries, {path.name}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ExperimentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
