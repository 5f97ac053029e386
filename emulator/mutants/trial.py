"""One mutant against one subject, in a process of its own: the first seed that shows it, or none."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import EmulatorError
from ..processes.programs import find
from ..replay import Replayer, ReplayOptions, ReplayResult
from ..replay.report import root_cause
from .loader import override
from .reach import executed, marked
from .subjects import LaunchMutant, Subject

# The parts of the adversary, each alone; "races" is all of it, and what verdicts come from.
DETECTORS: dict[str, dict[str, Any]] = {
    "sc": {"memory": "sc", "races": False},
    "late": {"memory": "late", "races": False},
    "stale": {"memory": "stale", "races": False},
    "weak": {"memory": "weak", "races": False},
    "races": {"memory": "weak", "races": True},
}


@dataclass(frozen=True)
class Outcome:
    """What one detector made of one mutant.

    Attributes:
        detector: key of `DETECTORS`.
        seed: first seed with a report, or None.
        seeds_tried: seeds run.
        time_s: wall-clock seconds.
        kind, text: of the report.
        invalid: the exception that makes the mutant no program at all ("" if it is one).
    """

    detector: str
    seed: int | None
    seeds_tried: int
    time_s: float
    kind: str = ""
    text: str = ""
    invalid: str = ""


def _judge(result: ReplayResult) -> tuple[str, str, str]:
    """(kind, text, invalid) of a run with a report."""
    report = result.reports[0]
    if report.error is None:
        return report.kind, report.text, ""
    root = root_cause(report.error)
    # The program's own checks and the emulator's refusals are findings; whatever else Python raises is no synchronisation.
    if isinstance(root, AssertionError):
        return "result", report.text, ""
    if isinstance(root, EmulatorError):
        return "refused", report.text, ""
    return report.kind, report.text, f"{type(root).__name__}: {str(root).strip()}"


def attack(replayer: Replayer, resident: int, detector: str, seeds: Iterable[int], limit_s: float) -> Outcome:
    """Seeds until one is reported, all are done, or time is up."""
    options = ReplayOptions(resident=resident, **DETECTORS[detector])
    began, tried = time.monotonic(), 0
    for seed in seeds:
        result = replayer.run(seed, options)
        tried += 1
        if not result.ok:
            kind, text, invalid = _judge(result)
            return Outcome(detector, seed, tried, time.monotonic() - began, kind, text, invalid)
        if time.monotonic() - began > limit_s:
            break
    return Outcome(detector, None, tried, time.monotonic() - began)


class _Altered:
    """Symmetric memory that changes launches."""

    def __init__(self, symm: Any, change: LaunchMutant, resident: int):
        self.__dict__.update(_symm=symm, _change=change, _resident=resident)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._symm, name)

    def max_resident(self, num_warps: int) -> int:
        return self._resident

    def launch(self, kernel: Any, grid: int, args: dict[str, Any], **how: Any) -> None:
        changed = {k: self._change.args.get(k, v) for k, v in args.items()}
        if self._change.resident is not None:
            how["waits"] = False  # the launch's own check goes by a number that is wrong
        self._symm.launch(kernel, grid, changed, **how)


def _program(subject: Subject, change: LaunchMutant | None) -> Callable[..., Any]:
    program = find(subject.program)
    if change is None:
        return program
    return lambda symm, *args: program(_Altered(symm, change, subject.resident), *args)


def trial(
    subject: Subject, sources: dict[str, str], change: LaunchMutant | None, detectors: tuple[str, ...], seeds: int, control_seeds: int,
    first: int, limit_s: float,
) -> list[Outcome]:  # fmt: skip
    """Attack one mutant: `sources` run in place of modules, `change` alters launches; nothing changed if both are empty.

    The first of `detectors` gets `seeds` seeds from `first` on, the others `control_seeds`, and only if the mutant is a program
    at all. Each gets `limit_s` seconds.
    """
    resident = subject.resident if change is None or change.resident is None else change.resident

    def run() -> list[Outcome]:
        replayer = Replayer(_program(subject, change), subject.world_size, subject.args, subject.heap_bytes)
        outcomes = []
        for number, detector in enumerate(detectors):
            chosen = range(first, first + (control_seeds if number else seeds))
            outcomes.append(attack(replayer, resident, detector, chosen, limit_s))
            if outcomes[-1].invalid:
                break
        return outcomes

    if not sources:
        return run()
    with override(sources):
        return run()


def reach(subject: Subject, sources: dict[str, str]) -> dict[str, set[int]]:
    """Lines of each module's statements that the unchanged subject executes."""
    with override({module: marked(text) for module, text in sources.items()}):
        replayer = Replayer(find(subject.program), subject.world_size, subject.args, subject.heap_bytes)
        return executed(replayer, subject.modules, subject.resident)
