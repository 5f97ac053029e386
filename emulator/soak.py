"""`python -m emulator soak`: thousands of schedules of correct programs, all of them, with what was seen kept in a CSV file.

Goes on where it stopped: seeds are run in blocks, each in a forked child (so that memory stays flat), and the file is replaced after
each. Exits 0 when every program has its seeds and no report, 1 with the first report of each program that has one, 75 while seeds are left.
"""

import argparse
import csv
import io
import os
import platform
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch._dynamo
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from . import files
from .check import replay_command
from .errors import EmulatorError
from .explore import explore, load
from .forks import Lost, forked
from .mutants.subjects import Subject, read
from .replay import Replayer, ReplayOptions
from .verdicts import Exploration, sources_digest

INCOMPLETE = 75
_FOR_EVER_S = 1e6


@dataclass(frozen=True)
class Row:
    """What was seen of one program, as the file has it. Seeds are 0, 1, ..., seeds - 1.

    Attributes:
        program: name of the subject.
        world_size, resident: ranks, physical work-groups of a rank.
        seeds: schedules run, each under the whole adversary and the race detector.
        reports: seeds with a report.
        first_report: lowest of them, or None.
        distinct: different schedules among them, by digest: order of operations and what they were.
        longest: operations of the longest schedule.
        processor_s: processor seconds, those for interpreting what is not yet recorded included.
        peak_mb: largest resident set of a process, MB of 2^20 bytes.
        cpu, cores: model of the processor, cores of the machine.
        python, torch, triton: versions.
        sources: digest of the sources that ran, the emulator's included.
    """

    program: str
    world_size: int
    resident: int
    seeds: int
    reports: int
    first_report: int | None
    distinct: int
    longest: int
    processor_s: float
    peak_mb: int
    cpu: str
    cores: int
    python: str
    torch: str
    triton: str
    sources: str


class _Block(NamedTuple):
    digests: np.ndarray  # uint64, one a seed
    reports: list[int]  # seeds
    longest: int
    processor_s: float
    peak_mb: int
    sources: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--subjects",
        type=Path,
        default=Path("experiments/cases/subjects.yaml"),
        metavar="FILE",
        help="YAML file of programs, as for the campaign (default %(default)s)",
    )
    parser.add_argument("--subject", action="append", metavar="NAME", help="only this subject; may be repeated")
    parser.add_argument(
        "--seeds", type=int, default=10_000, metavar="N", help="schedules of each (default %(default)s)"
    )
    parser.add_argument(
        "--block", type=int, default=500, metavar="N", help="schedules until the file is written (default %(default)s)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=_FOR_EVER_S, metavar="SECONDS", help="begin no block after this"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes side by side (default: cores)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="CSV file to write, and to go on with")


def _run_block(subject: Subject, seeds: range) -> _Block:
    replayer = Replayer(load(subject.program), subject.world_size, subject.args, subject.heap_bytes)
    options, began = _options(subject), time.process_time()
    digests, reports, longest = [], [], 0
    for seed in seeds:
        result = replayer.run(seed, options)
        digests.append(int(result.digest, 16))
        longest = max(longest, result.steps)
        if not result.ok:
            reports.append(seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    used = time.process_time() - began
    return _Block(np.array(digests, np.uint64), reports, longest, used, peak, sources_digest(emulator=True))


def _options(subject: Subject) -> ReplayOptions:
    return ReplayOptions(resident=subject.resident)


class _Record:
    """The CSV file, and beside it every program's digests, which tell old schedules from new ones when a run goes on."""

    def __init__(self, path: Path):
        self.path, self.folder = path, path.with_suffix(".digests")
        self.rows = {row.program: row for row in _read(path)}
        for row in self.rows.values():
            have = self._digests(row.program).size
            if have < row.seeds:
                raise EmulatorError(
                    f"{self.folder / row.program} has {have} digests; allowed: the {row.seeds} that {path} tells of, or another --out"
                )

    def _digests(self, program: str) -> np.ndarray:
        file = self.folder / program
        return np.fromfile(file, "<u8") if file.is_file() else np.empty(0, np.uint64)

    def add(self, subject: Subject, block: _Block) -> None:
        """Lay the next block of a program behind its seeds; the row changes last, and at once."""
        old = self.rows.get(subject.name) or Row(
            subject.name, subject.world_size, subject.resident, 0, 0, None, 0, 0, 0.0, 0, _cpu(), os.cpu_count() or 1,
            platform.python_version(), torch.__version__, metadata.version("triton"), block.sources,
        )  # fmt: skip
        for name, value in _conditions(block).items():
            if getattr(old, name) != value:
                raise EmulatorError(
                    f"{self.path}, {subject.name}: {name} is {getattr(old, name)!r}, and {value!r} now; allowed: the same, or another --out"
                )
        digests = np.concatenate([self._digests(subject.name)[: old.seeds], block.digests])
        files.write(self.folder / subject.name, digests.astype("<u8").tobytes(), "--out")
        self.rows[subject.name] = replace(
            old, seeds=digests.size, reports=old.reports + len(block.reports),
            first_report=old.first_report if old.first_report is not None else next(iter(block.reports), None),
            distinct=np.unique(digests).size, longest=max(old.longest, block.longest),
            processor_s=round(old.processor_s + block.processor_s, 1), peak_mb=max(old.peak_mb, block.peak_mb),
        )  # fmt: skip
        text = io.StringIO()
        writer = csv.DictWriter(text, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(self.rows[name]) for name in sorted(self.rows))
        files.write(self.path, text.getvalue(), "--out")

    def seeds(self, subject: Subject) -> int:
        return self.rows[subject.name].seeds if subject.name in self.rows else 0


def _conditions(block: _Block) -> dict[str, Any]:
    """What all seeds of a row have in common."""
    return {
        "sources": block.sources, "python": platform.python_version(), "torch": torch.__version__, "triton": metadata.version("triton"),
        "cpu": _cpu(), "cores": os.cpu_count() or 1,
    }  # fmt: skip


def _cpu() -> str:
    """Model of the processor, as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _read(path: Path) -> list[Row]:
    """Rows written before; none if the file is not there."""
    if not path.exists():
        return []
    names = [f.name for f in fields(Row)]
    try:
        header, *cells = csv.reader(path.read_text().splitlines())
        if header == names:
            return [_row(dict(zip(names, line, strict=True))) for line in cells]
    except (OSError, ValueError) as error:
        raise EmulatorError(f"--out is {str(path)!r}: {error}; allowed: a file that this command wrote") from None
    raise EmulatorError(f"{path} has the columns {', '.join(header)}; allowed: {', '.join(names)}")


def _row(cells: dict[str, str]) -> Row:
    kinds = {"str": str, "int": int, "float": float, "int | None": lambda cell: int(cell) if cell else None}
    return Row(**{f.name: kinds[getattr(f.type, "__name__", str(f.type))](cells[f.name]) for f in fields(Row)})


def _chosen(options: argparse.Namespace) -> list[Subject]:
    subjects = read(options.subjects)
    names = [s.name for s in subjects]
    for name in options.subject or ():
        if name not in names:
            raise EmulatorError(f"--subject is {name!r}; allowed: {', '.join(names)}")
    return [s for s in subjects if s.name in (options.subject or names)]


def _blocks(record: _Record, subjects: list[Subject], options: argparse.Namespace) -> Iterator[int]:
    """Run one block of every program that has seeds left, and again, until none has or time is up; yields seeds as they are kept."""
    end = time.monotonic() + options.time_limit
    while time.monotonic() < end:
        left = [s for s in subjects if record.seeds(s) < options.seeds]
        if not left:
            return
        tasks = []
        for subject in left:
            first = record.seeds(subject)
            tasks.append(partial(_run_block, subject, range(first, min(first + options.block, options.seeds))))
        for index, block in forked(tasks, options.jobs, _FOR_EVER_S):
            if isinstance(block, Lost):
                raise block.error or EmulatorError(f"{left[index].name}: {block.why}")
            record.add(left[index], block)
            yield block.digests.size
            if time.monotonic() >= end:
                return


def _show(subject: Subject, row: Row) -> None:
    """The first report of a program, shrunk, and the command that shows it again."""
    asked = Exploration(
        program=subject.program, world_size=subject.world_size, args=subject.args, first=row.first_report, seeds=1,
        heap_bytes=subject.heap_bytes, options=asdict(_options(subject)),
    )  # fmt: skip
    verdict = explore(asked)
    print(f"{subject.name}: {verdict.finding}\nreplay: {replay_command(verdict)}")


def run(options: argparse.Namespace) -> int:
    """Run what is left; the exit status."""
    for name in ("seeds", "block", "jobs"):
        if getattr(options, name) < 1:
            raise EmulatorError(f"--{name} is {getattr(options, name)}; allowed: 1 or more")
    subjects, record, console = _chosen(options), _Record(options.out), Console(stderr=True)
    torch.set_num_threads(1)
    for subject in subjects:
        load(subject.program)  # children inherit it
    total = options.seeds * len(subjects)
    done = sum(min(record.seeds(s), options.seeds) for s in subjects)
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)
        for seeds in _blocks(record, subjects, options):
            done += seeds
            bar.advance(task, seeds)
            if not console.is_terminal:
                console.print(f"schedules: {done} of {total}", highlight=False)
    reported = [s for s in subjects if s.name in record.rows and record.rows[s.name].reports]
    for subject in reported:
        _show(subject, record.rows[subject.name])
    reports = sum(record.rows[s.name].reports for s in reported)
    print(f"{done} of {total} schedules of {len(subjects)} programs, {reports} with a report; {options.out}")
    return 1 if reported else INCOMPLETE if done < total else 0
