"""`python -m experiments.record --machine h200-x2`: everything that is recorded of a machine, in pieces that end in time.

Correctness, microbenchmarks, the three operators and the studies go to `experiments/reference/<machine>/` as raw samples with
provenance and checksums. Run it until it exits 0: each run goes on where the last one stopped. Exits 75 while something
is left, 1 when a result was wrong.
"""

import argparse
import hashlib
import json
import re
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

    def __init__(self, folder: Path, machine: str, clock: measure_run.Clock, source: Any, commit: str | None):
        self.folder, self.machine, self.clock, self.source, self.commit = folder, machine, clock, source, commit
        self.command = "python -m experiments.record --machine " + machine
        self.left: list[str] = []
        self.failures: list[str] = []

    def piece(self, name: str, work: Callable[[Path], bool], least_s: float) -> None:
        """Do one piece if time is left for it; `work(path)` says whether the piece is complete."""
        from artifact import provenance

        path = self.folder / f"{name}.csv"
        if self.source.agree(self.clock.left() < least_s):
            self.left.append(name)
            return
        started, begin = provenance.now(), time.monotonic()
        if not work(path):
            self.left.append(name)
        if self.source.writes and path.is_file():
            write_provenance(path, self.machine, self.command, started, None, self.commit)
            write_manifest(self.folder)
        print(f"record: {name}: {time.monotonic() - begin:.0f} s, {self.clock.left():.0f} s left", flush=True)

    def microbenchmarks(self, path: Path) -> bool:
        if not path.is_file():
            measure_run.microbenchmarks(self.source, self.machine, path)
        return True

    def operator(self, name: str) -> Callable[[Path], bool]:
        def work(path: Path) -> bool:
            outcome = measure_run.measure(
                self.source,
                name,
                cases.timing(name),
                self.machine,
                path,
                self.clock,
                report=lambda text: print(text, flush=True),
            )
            self.failures += outcome.failures
            print(f"record: {name}: {outcome.line()}", flush=True)
            return not outcome.left

        return work


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
    from .studies import STUDIES

    names = (microbench_operator, *cases.OPERATORS, *STUDIES)
    for name in options.only or ():
        require(name in names, "--only", name, ", ".join(names))
    with measure_run.open_source(world) as source:
        recorder = Recorder(folder, options.machine, clock, source, options.commit)
        for name in options.only or names:
            if name == microbench_operator:
                recorder.piece(name, recorder.microbenchmarks, 20.0)
            elif name in cases.OPERATORS:
                recorder.piece(name, recorder.operator(name), 20.0)
            elif world in STUDIES[name].worlds:
                recorder.piece(
                    name, lambda path, n=name: STUDIES[n].run(recorder.source, options.machine, path, clock), 20.0
                )
    for name in cases.OPERATORS:
        found = rows.read(folder / f"{name}.csv", rows.TIMING)
        if found and source.writes:
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
