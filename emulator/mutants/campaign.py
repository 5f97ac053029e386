"""`python -m emulator campaign`: break kernels on purpose, rule by rule, and see what each part of the adversary makes of it.

Every mutant is run in a forked child under the whole adversary until a seed reports it, then under parts of it: late stores only,
stale loads only, both without the race detector, and sequential consistency, the control which shows what bites. Exits 1 when a
mistake survives, when something that is none is reported, or when a statement of the subjects file is not true (any more).
"""

import argparse
import csv
import io
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 (torch imports it, in seconds, at the first operation under a dispatch mode: once, not in every child)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import EmulatorError
from ..forks import Lost, forked
from .loader import source_of
from .reach import reached
from .subjects import LaunchMutant, Subject, read
from .transform import mutate
from .trial import DETECTORS, Outcome, reach, trial

UNCHANGED = "unchanged"
# A verdict of the last two fails the campaign.
VERDICTS = ("caught", "equivalent", "clean", "skipped", "survived", "false report")
_MODULES_NOT_FORKED = ("kernels", "experiments")


@dataclass(frozen=True)
class Row:
    """One mutant under one detector, as the result file has it.

    Attributes:
        kernel: subject's name; "none" for a mutant whose line no subject executes.
        mutant: "module.rule@function:line", a launch mutant's name, or "unchanged".
        change: the code before and after it, one line.
        detector: key of `DETECTORS`; "races" is the whole adversary and decides.
        verdict: of `VERDICTS`; for the other detectors "caught" or "survived", which fails nothing.
        seed: first seed with a report, or None.
        seeds_tried: seeds run.
        time_s: wall-clock seconds.
        report: kind of the report ("race", "hang", "result", ...; "" for none).
        reason: why it is equivalent, clean or skipped, or the first line of the report.
    """

    kernel: str
    mutant: str
    change: str
    detector: str
    verdict: str
    seed: int | None
    seeds_tried: int
    time_s: float
    report: str
    reason: str


@dataclass(frozen=True)
class Job:
    """One mutant of one subject: what is changed, and what is said about it."""

    subject: Subject
    mutant: str
    change: str
    sources: dict[str, str]
    launch: LaunchMutant | None
    expect: str
    reason: str

    def rows(self, answer: list[Outcome] | Lost) -> Iterator[Row]:
        """Verdicts on what came of the job."""
        if isinstance(answer, Lost):
            answer = [Outcome("races", None, 0, 0.0, "lost", answer.why)]
        for outcome in answer:
            found = outcome.seed is not None
            first_line = outcome.text.strip().partition("\n")[0]
            verdict, reason = "caught" if found else "survived", first_line
            if outcome.detector == "races":
                if outcome.invalid:
                    verdict, reason = "skipped", f"not a program: {outcome.invalid}"
                elif self.expect != "caught":
                    verdict, reason = ("false report", first_line) if found else (self.expect, self.reason)
            yield Row(
                self.subject.name, self.mutant, self.change, outcome.detector, verdict, outcome.seed, outcome.seeds_tried,
                round(outcome.time_s, 3), "" if outcome.invalid else outcome.kind, " ".join(reason.split()),
            )  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--sample", action="store_true", help="only subjects marked `sample`")
    size.add_argument("--full", action="store_true", help="all subjects (default)")
    parser.add_argument(
        "--subjects", type=Path, default=Path("experiments/cases/subjects.yaml"), help="YAML file of programs to attack"
    )
    parser.add_argument("--subject", action="append", help="only this subject; may be repeated")
    parser.add_argument("--mutant", default="", help="only mutants whose name contains this text")
    parser.add_argument("--seeds", type=int, default=200, help="schedules of each mutant under the whole adversary")
    parser.add_argument("--control-seeds", type=int, default=20, help="schedules under each part of it; 0: none")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of one mutant under one detector")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")


def _chosen(options: argparse.Namespace) -> list[Subject]:
    subjects = read(options.subjects)
    names = [s.name for s in subjects]
    for name in options.subject or ():
        if name not in names:
            raise EmulatorError(f"--subject is {name!r}; allowed: {', '.join(names)}")
    chosen = [s for s in subjects if s.name in (options.subject or names) and (s.sample or not options.sample)]
    if not chosen:
        raise EmulatorError(f"{options.subjects}: no subject is marked `sample`; allowed: --full, or a mark")
    return chosen


def _jobs(subject: Subject, lines: dict[str, set[int]], wanted: str) -> tuple[list[Job], set[str]]:
    """The subject's jobs, and the mutants' names that its equivalences speak of."""
    jobs = [Job(subject, UNCHANGED, "", {}, None, "clean", "the program as it is")]
    for change in subject.launch:
        text = ", ".join(
            f"{k} = {v}" for k, v in (change.args | ({"resident": change.resident} if change.resident else {})).items()
        )
        jobs.append(Job(subject, change.name, text, {}, change, change.expect, change.reason))
    spoken_of = set()
    for module in subject.modules:
        source = source_of(module)
        for mutant in mutate(source):
            name, text = f"{module}.{mutant.name}", f"{mutant.before} -> {mutant.after or '(nothing)'}"
            if not (subject.wants(name) and reached(source, mutant.line, lines[module])):
                continue
            known = subject.equivalence(name, text)
            if known is not None:
                spoken_of.add(known.mutant)
            expect, reason = (
                ("caught", "") if known is None else ("equivalent", f"{known.reason} {known.evidence}".strip())
            )
            jobs.append(Job(subject, name, text, {module: mutant.source}, None, expect, reason))
    return [j for j in jobs if wanted in j.mutant], spoken_of


def _unreached(subjects: list[Subject], lines: list[dict[str, set[int]]], wanted: str) -> Iterator[Row]:
    """Mutants of lines that no subject executes: said, since nothing is known about them."""
    for module in sorted({m for s in subjects for m in s.modules}):
        source = source_of(module)
        executed = set().union(*(found.get(module, set()) for found in lines))
        for mutant in mutate(source):
            name = f"{module}.{mutant.name}"
            if wanted in name and not reached(source, mutant.line, executed):
                text = f"{mutant.before} -> {mutant.after or '(nothing)'}"
                yield Row("none", name, text, "races", "skipped", None, 0, 0.0, "", "no subject executes this line")


def _write(path: Path, rows: list[Row]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Row.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        asdict(row) for row in sorted(rows, key=lambda r: (r.kernel, r.mutant, list(DETECTORS).index(r.detector)))
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(text.getvalue())
        os.replace(part, path)
    except OSError as error:
        raise EmulatorError(f"--out is {str(path)!r}: {error.strerror}") from None


def _done(
    tasks: list[Callable[[], Any]], jobs: int, limit_s: float, label: str, console: Console
) -> Iterator[tuple[int, Any]]:
    """`forked` with a progress bar, or a line now and then where there is no terminal."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=len(tasks))
        for number, answer in enumerate(forked(tasks, jobs, limit_s), 1):
            bar.advance(task)
            if not console.is_terminal and number % 25 == 0:
                console.print(f"{label}: {number} of {len(tasks)}", highlight=False)
            yield answer


def _complaints(rows: list[Row], idle: list[str]) -> Iterator[str]:
    for row in rows:
        if row.detector != "races" or row.verdict not in ("survived", "false report"):
            continue
        if row.verdict == "survived":
            yield f"{row.kernel}: {row.mutant} survived {row.seeds_tried} seeds: {row.change}"
        else:
            yield f"{row.kernel}: {row.mutant} is no mistake and was reported at seed {row.seed}: {row.reason}"
    yield from (f"equivalence {pattern!r} fits no mutant that is executed; allowed: one that does" for pattern in idle)


def run(options: argparse.Namespace) -> int:
    """Run the campaign; the exit status."""
    for name, least in (("seeds", 1), ("control_seeds", 0), ("first", 0), ("jobs", 1)):
        if getattr(options, name) < least:
            raise EmulatorError(f"--{name.replace('_', '-')} is {getattr(options, name)}; allowed: {least} or more")
    # Children inherit what is imported here; what is mutated, they import themselves.
    loaded = sorted(m for m in sys.modules if m.partition(".")[0] in _MODULES_NOT_FORKED)
    if loaded:
        raise EmulatorError(
            f"a campaign starts in a process where {loaded[0]} is imported already; allowed: a fresh one"
        )
    console = Console(stderr=True)
    began = time.monotonic()
    subjects = _chosen(options)

    lines: list[dict[str, set[int]]] = [{} for _ in subjects]
    first = [partial(reach, s, {m: source_of(m) for m in s.modules}) for s in subjects]
    for index, answer in _done(first, options.jobs, options.limit, "statements reached", console):
        if isinstance(answer, Lost):
            raise EmulatorError(f"{options.subjects}, {subjects[index].name} does not run: {answer.why}")
        lines[index] = answer

    jobs: list[Job] = []
    idle: list[str] = []
    spoken_of: set[str] = set()
    for subject, found in zip(subjects, lines, strict=True):
        more, spoken = _jobs(subject, found, options.mutant)
        jobs += more
        spoken_of |= spoken
    if not (options.sample or options.subject or options.mutant):
        idle = sorted({e.mutant for s in subjects for e in s.equivalent} - spoken_of)
    controls = tuple(d for d in reversed(DETECTORS) if d != "races") if options.control_seeds else ()
    tasks = [
        partial(
            trial, j.subject, j.sources, j.launch, ("races", *(controls if j.expect == "caught" else ())), options.seeds,
            options.control_seeds, options.first, options.limit,
        )
        for j in jobs
    ]  # fmt: skip
    rows = [] if options.subject else list(_unreached(subjects, lines, options.mutant))
    for index, answer in _done(tasks, options.jobs, options.limit * len(DETECTORS), "mutants", console):
        rows += jobs[index].rows(answer)
    _write(options.out, rows)

    complaints = list(_complaints(rows, idle))
    for line in complaints:
        print(line, file=sys.stderr)
    counts = Counter(row.verdict for row in rows if row.detector == "races")
    told = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
    print(f"{len(jobs)} mutants of {len(subjects)} programs in {time.monotonic() - began:.0f} s: {told}; {options.out}")
    return 1 if complaints else 0
