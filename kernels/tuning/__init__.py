"""Tuned launch configurations, one JSON file a GPU model, made by `python -m experiments.tune`.

A choice depends on the problem and the GPU's name only, so that all ranks of a homogeneous machine make the same one. An
unknown GPU, or a problem that is far from all that were tuned, gets None: the operator's safe default.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MAX_DISTANCE = math.log(64)  # summed over the sizes: a problem 64 times as large is another problem


def file_of(device_name: str) -> Path:
    """Where the configurations of a GPU model are: "NVIDIA H200" -> nvidia-h200.json."""
    return FOLDER / f"{re.sub('[^a-z0-9]+', '-', device_name.lower()).strip('-')}.json"


@lru_cache
def entries(device_name: str) -> tuple[dict[str, Any], ...]:
    """All tuned entries of a GPU model: operator, role, problem, config, resident, time_us."""
    path = file_of(device_name)
    return tuple(json.loads(path.read_text())["entries"]) if path.is_file() else ()


def distance(wanted: Mapping[str, Any], tuned: Mapping[str, Any]) -> float:
    """Sum over the sizes of |log(wanted / tuned)|; infinite where a word differs or a key is missing."""
    total = 0.0
    for key, value in wanted.items():
        other = tuned.get(key)
        if isinstance(value, str) or isinstance(other, str) or other is None:
            total += 0.0 if value == other else math.inf
        else:
            total += abs(math.log(max(value, 1) / max(other, 1)))
    return total


def nearest(device_name: str, operator: str, role: str, problem: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry of the nearest tuned problem, or None.

    Args:
        role: "fused" or "compute".
        problem: words (must match) and sizes (as near as possible) that the choice depends on.
    """
    found = [e for e in entries(device_name) if e["operator"] == operator and e["role"] == role]
    best = min(found, key=lambda e: distance(problem, e["problem"]), default=None)
    return best if best is not None and distance(problem, best["problem"]) <= MAX_DISTANCE else None


@lru_cache
def _name(index: int | None) -> str:
    import torch

    return torch.cuda.get_device_name(index)


def choose(
    symm: Any, operator: str, role: str, problem: Mapping[str, Any], waiting_part: int = 4
) -> dict[str, Any] | None:
    """Fields of the operator's Config for this problem on this rank's GPU, or None where nothing suits.

    The grid is cut to this rank's share of the device. Where it waits for other ranks and was tuned for another world size,
    the kernel may need more registers than it did then, and all work-groups must be resident: it is cut to one
    `waiting_part`-th of the warp slots, which 128 (for 4) or 64 (for 2) registers a thread allow.
    """
    if symm.device.type != "cuda":
        return None
    # Kept per rank: an eager call must not search a table each time.
    made = symm.state.setdefault("tuning", {})
    key = (operator, role, *problem.items())
    if key not in made:
        made[key] = _choose(symm, operator, role, problem, waiting_part)
    return made[key]


def _choose(
    symm: Any, operator: str, role: str, problem: Mapping[str, Any], waiting_part: int
) -> dict[str, Any] | None:
    # The timing model asks for GPUs that are not there, by name.
    name = getattr(symm, "device_name", None) or _name(symm.device.index)
    entry = nearest(name, operator, role, problem)
    if entry is None:
        return None
    config = dict(entry["config"])
    share = symm.max_resident(config["num_warps"])
    grid = max(1, config["grid"] * share // entry["resident"])
    if role == "fused":
        same = entry["problem"].get("world_size") == problem.get("world_size")
        grid = min(grid, share if same else max(1, share // waiting_part))
    return config | {"grid": grid}
