"""`python -m experiments.record --machine h200-x2`: everything that is recorded of a machine, in pieces that end in time.

Correctness, microbenchmarks, the three operators and the studies go to `experiments/reference/<machine>/` as raw samples with
provenance and checksums. Run it until it exits 0: each run goes on where the last one stopped. Exits 75 while something
is left, 1 when a result was wrong.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import cases, ranks, rows
from .errors import ExperimentError, require
from .measure import __main__ as measure_cli
from .measure import microbench_operator, table
from .measure import run as measure_run

REFERENCE = Path(__file__).parent / "reference"
MANIFEST = "MANIFEST.sha256"
LEAST_S = 20.0  # nothing is begun with less time left
# Timed on NVSHMEM heaps, beside the transport that only they carry.
RDMA_ARMS = {
    "embedding_all_to_all": ("fused.rdma", "fused.peer", "own", "own+nccl", "bag_one+nccl"),
    "gemm_all_to_all": ("fused.rdma", "fused.peer", "own", "own+nccl", "cublas+nccl"),
}
ROOT = Path(__file__).resolve().parent.parent


def world_of(machine: str) -> int:
    """GPUs that a machine's name says: h200-x2 has two."""
    match = re.fullmatch(r"[a-z0-9-]+-x(1|2|4|8)", machine)
    require(match is not None, "--machine", machine, "a name that ends in -x1, -x2, -x4 or -x8, as h200-x2")
    assert match is not None
    return int(match.group(1))


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_manifest(folder: Path) -> Path:
    """Checksums of all files of a record, in the form that `sha256sum -c` reads."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST and not p.name.endswith(".part"))
    path = folder / MANIFEST
    path.write_text("".join(f"{sha256(p)}  {p.relative_to(folder).as_posix()}\n" for p in files))
    return path


def check_manifest(folder: Path) -> int:
    """How many files agree with the manifest. Raises `ExperimentError` naming the first that does not."""
    path = folder / MANIFEST
    require(path.is_file(), "manifest", f"{folder.name}/{MANIFEST}", "an existing file")
    lines = path.read_text().splitlines()
    for line in lines:
        digest, _, name = line.partition("  ")
        file = folder / name
        require(file.is_file(), f"file of {folder.name}/{MANIFEST}", name, "an existing file")
        require(
            sha256(file) == digest,
            f"checksum of {folder.name}/{name}",
            sha256(file)[:12],
            f"{digest[:12]}, as recorded",
        )
    return len(lines)


def write_provenance(
    path: Path, machine: str, command: str, started: str, seed: int | None, commit: str | None
) -> None:
    """Lay the provenance around the notes of a result file."""
    from artifact import provenance

    sources = [
        p
        for room in ("experiments", "kernels")
        for p in (ROOT / room).rglob("*")
        if p.suffix in (".py", ".csv", ".json")
    ]
    sources = [p for p in sources if REFERENCE not in p.parents]
    block = provenance.collect(
        backend="gpu", machine=machine, command=command, started=started, sources=sources, seed=seed
    )
    if commit and block["git_dirty"] is None:
        block |= {"git_commit": commit}
    notes = path.with_suffix(".json")
    if notes.is_file():
        block["started"] = json.loads(notes.read_text()).get("started", started)
    provenance.write(path, block)


class Recorder:
    """One run: what it records, where, and how much time is left."""

    def __init__(self, folder: Path, machine: str, clock: measure_run.Clock, commit: str | None):
        self.folder, self.machine, self.clock, self.commit = folder, machine, clock, commit
        self.command = "python -m experiments.record --machine " + machine
        self.left: list[str] = []
        self.failures: list[str] = []

    def piece(self, source: Any, name: str, work: Callable[[Any, Path], bool]) -> None:
        """Do one piece if time is left for it; `work(source, path)` says whether the piece is complete."""
        from artifact import provenance

        path = self.folder / f"{name}.csv"
        if source.agree(self.clock.left() < LEAST_S):
            self.left.append(name)
            return
        before = sha256(path) if path.is_file() else ""
        started, begin = provenance.now(), time.monotonic()
        try:
            complete = work(source, path)
        except ExperimentError as error:
            self.failures.append(f"{name}: {error}")
            complete = False
        if not complete:
            self.left.append(name)
        if source.writes and path.is_file() and sha256(path) != before:
            write_provenance(path, self.machine, self.command, started, None, self.commit)
            write_manifest(self.folder)
        print(f"record: {name}: {time.monotonic() - begin:.0f} s, {self.clock.left():.0f} s left", flush=True)

    def verify(self, source: Any, path: Path) -> bool:
        """The sample of correctness cases, in a process of its own (virtual ranks where there is one GPU)."""
        if path.is_file():
            return True
        world = source.world_size
        where = ["--backend", "gpu", "--world", str(world)] if world > 1 else ["--backend", "gpu-virtual"]
        command = [sys.executable, "-m", "experiments.verify", "--sample", *where, "--out", str(path)]
        try:
            status = subprocess.run(command, cwd=ROOT, timeout=max(1.0, self.clock.left() - 5), check=False).returncode
        except subprocess.TimeoutExpired:
            path.unlink(missing_ok=True)
            return False
        require(status == 0, "exit status of verify", status, "0")
        return True

    def microbenchmarks(self, source: Any, path: Path) -> bool:
        if not path.is_file():
            measure_run.microbenchmarks(source, self.machine, path)
        return True

    def operator(self, name: str, only: tuple[str, ...] = ()) -> Callable[[Any, Path], bool]:
        """The timing cases of an operator: all arms, or those named."""

        def work(source: Any, path: Path) -> bool:
            say = lambda text: print(text, flush=True)
            jobs = cases.timing(name)
            outcome = measure_run.measure(source, name, jobs, self.machine, path, self.clock, report=say, only=only)
            self.failures += outcome.failures
            print(f"record: {path.stem}: {outcome.line()}", flush=True)
            return not outcome.left

        return work

    def study(self, name: str) -> Callable[[Any, Path], bool]:
        from .studies import STUDIES

        return lambda source, path: STUDIES[name].run(source, self.machine, path, self.clock)


def pieces(world: int) -> dict[str, tuple[str | None, str]]:
    """What is recorded with `world` GPUs: name of the piece -> (symmetric-memory backend, kind of piece), in order."""
    from .studies import STUDIES

    verify: dict[str, tuple[str | None, str]] = {"verify": (None, "verify")}
    found = (verify if world > 1 else {}) | {microbench_operator: (None, "microbenchmarks")}
    found |= {name: (None, "operator") for name in cases.OPERATORS}
    for name, study in STUDIES.items():
        if world in study.worlds and name != "staging":
            found[name] = (None, "study")
    # With several GPUs the staging study also runs the rdma transport, on heaps that NVSHMEM made.
    found["staging"] = ("NVSHMEM" if world > 1 else None, "study")
    if world > 1:
        found |= {f"{name}_rdma": ("NVSHMEM", "rdma") for name in RDMA_ARMS}
    return found | verify  # virtual ranks on one GPU come last: they compile for long


def _work(recorder: Recorder, name: str, kind: str) -> Callable[[Any, Path], bool]:
    """The work of a piece."""
    if kind == "operator":
        return recorder.operator(name)
    if kind == "rdma":
        return recorder.operator(name.removesuffix("_rdma"), RDMA_ARMS[name.removesuffix("_rdma")])
    return recorder.study(name) if kind == "study" else getattr(recorder, kind)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m experiments.record", description=__doc__.splitlines()[0])
    p.add_argument("--machine", required=True, help="name of this machine; its last part says how many GPUs: h200-x2")
    p.add_argument("--time-limit", type=float, default=480.0, metavar="SECONDS")
    p.add_argument(
        "--only", action="append", help="only this piece: an operator, microbenchmark or a study; may be repeated"
    )
    p.add_argument("--out", type=Path, help="folder (default: experiments/reference/<machine>)")
    p.add_argument("--commit", help="git commit of this copy of the sources, where there is no .git")
    p.add_argument("--check", action="store_true", help="only compare the recorded files with their checksums")
    options = p.parse_args(arguments)
    folder = options.out or REFERENCE / options.machine
    if options.check:
        print(f"record: {check_manifest(folder)} files of {options.machine} agree with {MANIFEST}")
        return 0
    clock = measure_run.Clock(options.time_limit)
    world = world_of(options.machine)
    require(world in ranks.world_sizes("gpu"), "GPUs", ranks.gpu_count(), f"{world} for {options.machine}")
    plan = pieces(world)
    for name in options.only or ():
        require(name in plan, "--only", name, ", ".join(plan))
    recorder, writes = Recorder(folder, options.machine, clock, options.commit), True
    for symmetric in (None, "NVSHMEM"):
        mine = {n: kind for n, (backend, kind) in plan.items() if backend == symmetric and n in (options.only or plan)}
        if mine and clock.left() < LEAST_S:
            recorder.left += list(mine)
        elif mine:
            with ranks.gpus(world, measure_run.HEAP_BYTES, symmetric) as source:
                for name, kind in mine.items():
                    recorder.piece(source, name, _work(recorder, name, kind))
                writes = source.writes
    for name in cases.OPERATORS:
        found = rows.read(folder / f"{name}.csv", rows.TIMING)
        if found and writes:
            print(f"\n{name} on {options.machine}: median us, CUDA graphs, maximum over ranks")
            print("\n".join(table.summary(list(found))))
    for failure in recorder.failures:
        print(f"failed: {failure}", file=sys.stderr)
    left = f"; left for the next run: {', '.join(recorder.left)}" if recorder.left else ""
    print(f"record: {options.machine}: {len(recorder.failures)} failures{left}")
    return 1 if recorder.failures else measure_cli.INCOMPLETE if recorder.left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ExperimentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
