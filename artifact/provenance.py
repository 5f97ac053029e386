"""Where a result came from: one JSON beside every result file."""

import datetime
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import ArtifactError
from .files import ROOT, read_json, write_json
from .vocabulary import BACKENDS, SCHEMA_VERSION

FIELDS = (
    "schema_version", "backend", "machine", "command", "seed", "git_commit", "git_dirty", "sources_sha256", "config_sha256",
    "host_sha256", "versions", "gpus", "environment", "started", "ended",
)  # fmt: skip
PACKAGES = ("torch", "triton", "numpy", "pandas", "snakemake", "nvidia-nccl-cu13", "nvidia-nccl-cu12")
# The only environment variables that may change a result: recorded, and everything else is dropped before a run.
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS",
    "OMP_NUM_THREADS", "PYTHONHASHSEED", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "TRITON_INTERPRET", "TRITON_CACHE_DIR",
)  # fmt: skip


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def sidecar(path: Path) -> Path:
    """Where the provenance of a result file lies: the same name with .json."""
    return path.with_suffix(".json")


def content_hash(paths: Iterable[Path], root: Path = ROOT) -> str:
    """SHA-256 over names and contents of files, whatever their order and place."""
    digest = hashlib.sha256()
    for path in sorted({p.resolve() for p in paths}):
        name = path.relative_to(root.resolve()) if path.is_relative_to(root.resolve()) else Path(path.name)
        digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def git_state(root: Path = ROOT) -> tuple[str, bool | None]:
    """(commit, dirty) of the repository, or ("not a git repository", None) in an unpacked archive."""

    def ask(*arguments: str) -> str:
        return subprocess.run(
            ("git", "-C", str(root), *arguments), capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        return ask("rev-parse", "HEAD"), bool(ask("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "not a git repository", None


def versions() -> dict[str, str]:
    """Versions of what computes: Python, and those of `PACKAGES` that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def gpus() -> list[dict[str, str]]:
    """Model, driver and power limit of each NVIDIA GPU; empty without a driver. AMD GPUs are named by torch in the harness."""
    query = "name,driver_version,power.limit,clocks.max.sm,memory.total"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    keys = ("model", "driver", "power_limit", "sm_clock_max", "memory")
    return [
        dict(zip(keys, (cell.strip() for cell in line.split(",")), strict=False))
        for line in answer.splitlines()
        if line.strip()
    ]


def host_hash() -> str:
    """A short hash that tells hosts apart without naming them."""
    return hashlib.sha256(f"{platform.node()}{platform.machine()}".encode()).hexdigest()[:16]


def environment() -> dict[str, str]:
    """Values of the whitelisted environment variables that are set."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def collect(
    *,
    backend: str,
    machine: str,
    command: str,
    started: str,
    sources: Iterable[Path] = (),
    config: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """The provenance block of a result made by `command` since `started` (`now()` taken before it). Raises `ArtifactError` for an unknown backend."""
    if backend not in (*BACKENDS, "build"):
        raise ArtifactError(f"backend is {backend!r}; allowed: {', '.join((*BACKENDS, 'build'))}")
    commit, dirty = git_state()
    return {
        "schema_version": SCHEMA_VERSION,
        "backend": backend,
        "machine": machine,
        "command": command,
        "seed": seed,
        "git_commit": commit,
        "git_dirty": dirty,
        "sources_sha256": content_hash(sources),
        "config_sha256": config_hash(config or {}),
        "host_sha256": host_hash(),
        "versions": versions(),
        "gpus": gpus(),
        "environment": environment(),
        "started": started,
        "ended": now(),
    }


def write(path: Path, block: Mapping[str, Any]) -> Path:
    """Write the provenance beside result file `path`; what the run itself had noted there is kept under "notes"."""
    target = sidecar(path)
    notes = read_json(target) if target.exists() else {}
    notes = notes.get("notes", {}) if set(FIELDS) <= set(notes) else notes
    return write_json(target, {**block, "notes": notes})


def read(path: Path) -> dict[str, Any]:
    """The provenance of result file `path`. Raises `ArtifactError` when it is missing, incomplete or of another schema."""
    found = read_json(sidecar(path))
    missing = [f for f in FIELDS if f not in found]
    if missing:
        raise ArtifactError(f"{sidecar(path)}: field {missing[0]} is missing")
    if found["schema_version"] != SCHEMA_VERSION:
        raise ArtifactError(
            f"{sidecar(path)}: schema_version is {found['schema_version']!r}; allowed: {SCHEMA_VERSION}"
        )
    return found
