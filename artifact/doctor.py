"""`python -m artifact doctor`: what this machine can run, what will be skipped, and why.

Exit status: 0 when the CPU pipeline can run, 1 when something that it needs is missing.
"""

import argparse
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from . import hardware, provenance
from .errors import ArtifactError
from .files import write_json

PAIRS = {"2.13": "3.7.1", "2.11": "3.6.0"}  # torch and the Triton that it is tested with
SHM_BYTES = 64 << 20
DISK_BYTES = 2 << 30
NEEDED = (
    "torch",
    "triton",
    "numpy",
    "greenlet",
    "pandas",
    "pandera",
    "pydantic",
    "scipy",
    "matplotlib",
    "simpy",
    "snakemake",
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `state`: ok, skipped (and nothing else suffers), or missing (the CPU pipeline cannot run)."""

    feature: str
    state: str
    detail: str


@dataclass(frozen=True)
class Probes:
    """Where the facts come from; tests put their own in."""

    version: Callable[[str], str | None]
    gpus: Callable[[], tuple[str, ...]]
    peer_access: Callable[[], bool]
    free_bytes: Callable[[str], int]
    which: Callable[[str], str | None]
    has_module: Callable[[str], bool]
    python: tuple[int, int] = (sys.version_info.major, sys.version_info.minor)


def version_of(package: str) -> str | None:
    """The installed version of a package; None without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def free_bytes(folder: str) -> int:
    """Free bytes of a file system; 0 when the folder does not exist."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def has_module(name: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


REAL = Probes(version_of, hardware.gpu_names, hardware.peer_access, free_bytes, shutil.which, has_module)


def examine(probes: Probes = REAL) -> list[Finding]:
    """All findings, in the order a reader wants them."""
    found = []

    def say(feature: str, good: bool, bad: str, detail: str, otherwise: str) -> None:
        found.append(Finding(feature, "ok" if good else bad, detail if good else otherwise))

    python = ".".join(map(str, probes.python))
    say("Python", (3, 11) <= probes.python < (3, 13), "missing", python, f"{python}: needs 3.11 or 3.12")
    lacking = [p for p in NEEDED if probes.version(p) is None]
    say(
        "packages",
        not lacking,
        "missing",
        f"{len(NEEDED)} found",
        f"not installed: {', '.join(lacking)}; run: pip install -r requirements.lock",
    )
    torch, triton = probes.version("torch") or "none", probes.version("triton") or "none"
    tested = PAIRS.get(".".join(torch.split(".")[:2])) == triton
    pairs = ", ".join(f"{a} + {b}" for a, b in PAIRS.items())
    say(
        "torch + triton",
        tested,
        "skipped",
        f"{torch} + {triton}",
        f"{torch} + {triton} is not a tested pair ({pairs}); it may work",
    )
    shm = probes.free_bytes("/dev/shm")
    say(
        "shared memory",
        shm >= SHM_BYTES,
        "missing",
        f"{shm >> 20} MB free in /dev/shm",
        f"{shm >> 20} MB free in /dev/shm: the emulator's heaps need {SHM_BYTES >> 20} MB",
    )
    disk = probes.free_bytes(".")
    say(
        "disk",
        disk >= DISK_BYTES,
        "missing",
        f"{disk >> 30} GB free here",
        f"{disk >> 20} MB free here: needs {DISK_BYTES >> 30} GB",
    )
    gpus = probes.gpus()
    peers = len(gpus) >= hardware.PEERS and probes.peer_access()
    say(
        "measuring",
        peers,
        "skipped",
        f"{len(gpus)} GPUs ({gpus[0] if gpus else ''}) with peer access",
        f"{hardware.NEEDS}, found {len(gpus)} GPUs: measured time comes from recorded measurements",
    )
    nvshmem = probes.has_module("nvidia.nvshmem") or probes.has_module("nvshmem")
    say(
        "NVSHMEM",
        bool(gpus) and nvshmem,
        "skipped",
        "found: the RDMA transport can run on these GPUs",
        "not found or no GPU: the RDMA transport runs in the emulator only",
    )
    compiler = next((c for c in ("cc", "gcc", "clang") if probes.which(c)), None)
    say(
        "C compiler",
        compiler is not None,
        "skipped",
        f"{compiler}",
        "none: needed only for Triton on GPUs and torch.compile with inductor",
    )
    say("git", probes.which("git") is not None, "skipped", "found", "none: provenance has no commit")
    return found


def report(findings: list[Finding]) -> str:
    """The findings in lines, and one that says what follows."""
    width = max(len(f.feature) for f in findings)
    lines = [f"{f.state:8} {f.feature:{width}}  {f.detail}" for f in findings]
    missing = [f.feature for f in findings if f.state == "missing"]
    if missing:
        return "\n".join([*lines, f"doctor: the pipeline cannot run here: {', '.join(missing)}"])
    gpu = any(f.feature == "measuring" and f.state == "ok" for f in findings)
    return "\n".join([*lines, f"doctor: ready for backend {'gpu' if gpu else 'emulator (CPU)'}"])


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact doctor", description=__doc__.splitlines()[0])
    p.add_argument("--backend", help="backend of the run, for --json")
    p.add_argument("--json", type=Path, help="write the findings as JSON too")
    options = p.parse_args(arguments)
    findings = examine()
    print(report(findings))
    if options.json:
        block = {
            "backend": options.backend,
            "findings": [asdict(f) for f in findings],
            "versions": provenance.versions(),
            "gpus": provenance.gpus(),
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "environment": provenance.environment(),
        }
        try:
            write_json(options.json, block)
        except ArtifactError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return 1 if any(f.state == "missing" for f in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
