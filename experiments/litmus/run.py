"""Runs the tests' kernels on ranks of any backend and sets what was seen beside what the memory model produces."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from .. import rows
from ..measure import run as measure_run
from .table import CASES, Case

COLUMNS = (
    "test", "placement", "telling", "model", "backend", "machine", "world_size", "instances", "telling_seen", "outside", "outcomes", "status", "reason",
)  # fmt: skip
UNREAD = -1  # no test stores it
LAUNCHES = 40
SHAPES = {
    "cuda": (512, 64),
    "cpu": (1, 16),
}  # groups, instances of a group in a launch; fewer groups where not so many are resident
TRIES = {"cuda": 20_000, "cpu": 50}
DELAYS = (0, 3, 17, 64)  # loads before a role begins, at most; launches take turns


def outcomes(symm: Any, number: int, launches: int, seed: int) -> Counter[str]:
    """Results of all instances of test `number`, over several launches with other homes, delays and seeds; the same on all ranks."""
    from . import device

    case, place = CASES[number], symm.device.type
    mine = [role for role in range(case.roles) if case.rank(role) == symm.rank]
    tile = case.shape == "tile and signal"
    stride, warps = (512, 4) if tile and place == "cuda" else (32, 1)
    widest = max(sum(case.rank(r) == rank for r in range(case.roles)) for rank in range(symm.world_size))
    groups, instances = SHAPES[place]
    groups = min(groups, min(symm.exchange(symm.max_resident(warps))) // widest)
    slots = groups * instances
    held = symm.state.setdefault("experiments.litmus", {})
    for name, size in (("locations", 2 * slots * stride), ("counters", slots)):
        if name not in held or held[name].numel() < size:
            held[name] = symm.empty(size, torch.int32, f"litmus.{name}")
    locations, counters = held["locations"], held["counters"]
    idle = torch.zeros(1, dtype=torch.int32, device=symm.device)
    roles = torch.tensor(mine, dtype=torch.int32, device=symm.device)
    found: Counter[str] = Counter()
    for launch in range(launches):
        homes = [launch % symm.world_size, launch // symm.world_size % symm.world_size]
        seen = torch.full((slots, len(case.registers)), UNREAD, dtype=torch.int32, device=symm.device)
        locations.zero_()
        counters.zero_()
        _meet(symm)
        args = {
            "locations": locations, "counters": counters, "bases": symm.bases, "seen": seen, "idle": idle, "roles": roles,
            "homes": torch.tensor(homes, dtype=torch.int32, device=symm.device), "me": symm.rank, "seed": seed + launch,
            "SHAPE": case.shape, "ROLES": case.roles, "HERE": len(mine), "REGISTERS": len(case.registers),
            "INSTANCES": instances, "GROUPS": groups, "STRIDE": stride, "TRIES": TRIES[place], "DELAY": DELAYS[launch % len(DELAYS)],
            **dict(zip("PQRS", case.parameters, strict=True)),
        }  # fmt: skip
        symm.launch(device.run, groups * len(mine), args, num_warps=warps)
        _meet(symm)
        together = torch.stack([torch.from_numpy(part) for part in symm.exchange(seen.cpu().numpy())]).amax(0)
        values, counts = together.unique(dim=0, return_counts=True)
        for row, count in zip(values.tolist(), counts.tolist(), strict=True):
            found[" ".join(f"{name}={value}" for name, value in zip(case.registers, row, strict=True))] += count
    return found


def _meet(symm: Any) -> None:
    if symm.device.type == "cuda":
        torch.cuda.synchronize()
    symm.barrier()


def row(case: Case, found: Counter[str], backend: str, machine: str) -> dict[str, Any]:
    """One row of `COLUMNS`; failed if something was seen that the model does not produce."""
    outside = {outcome: n for outcome, n in found.items() if outcome not in case.possible}
    return {
        "test": case.name, "placement": case.placement, "telling": case.telling,
        "model": "allowed" if case.telling in case.possible else "forbidden",
        "backend": backend, "machine": machine, "world_size": case.world_size,
        "instances": found.total(), "telling_seen": found[case.telling], "outside": sum(outside.values()),
        "outcomes": "; ".join(f"{outcome}: {n}" for outcome, n in sorted(found.items())),
        "status": "failed" if outside else "ok",
        "reason": f"not produced by the model: {', '.join(sorted(outside))}" if outside else "",
    }  # fmt: skip


def run(
    source: Any, machine: str, out: Path, clock: Any, backend: str = "gpu", launches: int = LAUNCHES, seed: int = 1
) -> bool:
    """Every test placed on as many GPUs as `source` has ranks that `out` lacks; whether all are done."""
    found: list[dict[str, Any]] = list(rows.read(out, COLUMNS))
    done = {(r["test"], r["placement"]) for r in found}
    for number, case in enumerate(CASES):
        if case.world_size != source.world_size or (case.name, case.placement) in done:
            continue
        if source.agree(clock.left() < 15):
            return False
        start = time.monotonic()
        seen = source.run(outcomes, number, launches, seed)[0]
        found.append(row(case, seen, backend, machine))
        if source.writes:
            rows.write(out, found, COLUMNS)
            notes = measure_run.read_notes(out)
            notes["cases"][f"{case.name}, {case.placement}"] = {"launches": launches, "seed": seed}
            measure_run.write_notes(out, notes)
            last = found[-1]
            print(
                f"litmus: {case.name}, {case.placement}: {case.telling} seen {last['telling_seen']} times of {last['instances']}"
                f" (model: {last['model']}), {last['status']}, {time.monotonic() - start:.1f} s", flush=True,
            )  # fmt: skip
    return True
