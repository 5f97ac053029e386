"""What an exploration is asked and what it found: plain data, so that a process that does not interpret kernels can hold it."""

import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Schedules of one program.

    Attributes:
        program: "path.py::function" or "module:function"; called as program(symm, *args), once a rank.
        world_size: ranks.
        args: further arguments, the same for every rank.
        first, seeds: the seeds are first, first + 1, ...
        schedulers: personalities that the seeds take turns in; empty: each seed picks its own.
        options: other fields of `ReplayOptions`.
        heap_bytes: symmetric heap of a rank; None for the default.
        shrink: whether a finding is shrunk.
    """

    program: str
    world_size: int = 2
    args: tuple[Any, ...] = ()
    first: int = 0
    seeds: int = 200
    schedulers: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    heap_bytes: int | None = None
    shrink: bool = True

    def scheduler(self, seed: int) -> str | None:
        """The personality of a seed; None: its own choice."""
        return self.schedulers[seed % len(self.schedulers)] if self.schedulers else None


@dataclass(frozen=True)
class Finding:
    """One report.

    Attributes:
        seed, scheduler: what shows it again (scheduler None: the seed's own choice).
        digest: of that run; a replay has the same.
        kind: as in `Report`; "result" when an assertion of the program failed.
        text: who did what where, and which order is missing.
        sites: source lines involved, "file:line".
        details: the same in pieces.
        trace: operations up to there, shrunk if that was asked for; one line each.
        was, now: (context switches, delayed deliveries) before and after shrinking; None if it was not shrunk.
    """

    seed: int
    scheduler: str | None
    digest: str
    kind: str
    text: str
    sites: tuple[str, ...]
    details: dict[str, Any]
    trace: tuple[str, ...]
    was: tuple[int, int] | None = None
    now: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.was is None:
            head = "operations up to there:"
        else:
            head = (
                f"shrunk from {self.was[0]} context switches and {self.was[1]} delayed deliveries to {self.now[0]} and "
                f"{self.now[1]}; operations up to there:"
            )
        return "\n".join([f"{self.kind} at seed {self.seed}: {self.text}", head, *(f"  {line}" for line in self.trace)])


@dataclass(frozen=True)
class Verdict:
    """What came of an exploration.

    Attributes:
        asked: the exploration.
        seeds_run: schedules run, those behind the finding included where several processes looked.
        time_s: wall-clock seconds.
        finding: of the lowest seed that has one; None: clean.
        sources: digest of the sources that ran, see `sources_digest`.
    """

    asked: Exploration
    seeds_run: int
    time_s: float
    finding: Finding | None
    sources: str


def sources_digest(emulator: bool = False) -> str:
    """16 hex digits over the text of this process's imported Python files, without installed ones; the emulator's own on request."""
    own = "" if emulator else str(Path(__file__).parent)
    files = {getattr(m, "__file__", None) or "" for m in list(sys.modules.values())}
    mine = sorted(
        f
        for f in files
        if f.startswith("/") and f.endswith(".py") and not (own and f.startswith(own)) and not re.search(_INSTALLED, f)
    )
    return hashlib.sha256(b"".join(Path(f).read_bytes() for f in mine)).hexdigest()[:16]


_INSTALLED = rf"/(site|dist)-packages/|^{re.escape(str(Path(sys.base_prefix) / 'lib'))}/"
