"""Shrink a failing run: fewest context switches and delayed deliveries that still show the same finding (delta debugging)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .options import Decisions, ReplayOptions
from .replay import Replayer, ReplayResult
from .report import Report


@dataclass(frozen=True)
class Shrunk:
    """A shrunk failure.

    Attributes:
        report: the finding, as the shrunk run tells it.
        decisions: what is left to decide; everything else is default. `Replayer.run(seed, options with these)` replays it.
        result: the shrunk run, with its trace.
        was: (switches, delayed deliveries) before; `now` after.
        runs: how many runs it took.
    """

    report: Report | None
    decisions: Decisions
    result: ReplayResult
    was: tuple[int, int]
    now: tuple[int, int]
    runs: int

    def __str__(self) -> str:
        head = (
            f"{self.report or 'the check of the results failed'}\n"
            f"shrunk from {self.was[0]} context switches and {self.was[1]} delayed deliveries to {self.now[0]} and {self.now[1]}"
            f" ({self.runs} runs); operations up to there:"
        )
        return "\n".join([head, *(f"  {line}" for line in self.story())])

    def story(self) -> list[str]:
        """The trace of the work-groups that the report names, and what others did to the flags that it names; polls once."""
        text = self.report.text if self.report is not None else ""
        named, places = set(re.findall(r"rank \d+ WG \d+", text)), set(re.findall(r"`[^`]+` of rank \d+", text))
        lines: list[str] = []
        left_out = 0
        for line in self.result.trace:
            if text and line[:14].strip() not in named and not any(place in line for place in places):
                left_out += 1
            elif not lines or lines[-1] != line:
                lines.append(line)
        return lines + ([f"({left_out} operations of other work-groups)"] if left_out else [])


def shrink(
    replayer: Replayer,
    failed: ReplayResult,
    options: ReplayOptions | None = None,
    *,
    fails: Callable[[ReplayResult], bool] | None = None,
    budget: int = 300,
    trace: int = 200,
) -> Shrunk:
    """Shrink `failed`, a result of `replayer.run(seed, options)`.

    Args:
        fails: says whether a run still fails; default: it has a report like the first one of `failed`.
        budget: runs at most.
        trace: operations to keep of the shrunk run.
    """
    options = options or ReplayOptions()
    wanted = failed.reports[0] if failed.reports else None
    if fails is None:
        if wanted is None:
            raise ValueError("nothing to shrink: the run has no report, and no `fails` was given")
        fails = lambda r: any(x.alike(wanted) for x in r.reports)
    runs = 0

    def attempt(items: list[tuple]) -> ReplayResult | None:
        nonlocal runs
        runs += 1
        decisions = Decisions({k: v for kind, k, v in items if kind == 0}, {k: v for kind, k, v in items if kind == 1})
        result = replayer.run(failed.seed, replace(options, decisions=decisions, trace=0))
        return result if fails(result) else None

    items = [(0, k, v) for k, v in failed.decisions.switches.items()] + [
        (1, k, v) for k, v in failed.decisions.choices.items()
    ]
    best = items
    if attempt([]) is not None:
        best = []
    elif attempt(items) is not None:
        for kind in (1, 0):  # often no delay, or no switch, is needed at all
            without = [i for i in best if i[0] != kind]
            if len(without) < len(best) and attempt(without) is not None:
                best = without
        size = max(1, len(best) // 2)
        while best and runs < budget:
            at, shorter = 0, False
            while at < len(best) and runs < budget:
                rest = best[:at] + best[at + size :]
                if attempt(rest) is not None:
                    best, shorter = rest, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            size = size if shorter and size == 1 else max(1, size // 2)
    decisions = Decisions({k: v for kind, k, v in best if kind == 0}, {k: v for kind, k, v in best if kind == 1})
    result = replayer.run(failed.seed, replace(options, decisions=decisions, trace=trace))
    report = next((r for r in result.reports if wanted is not None and r.alike(wanted)), None)
    return Shrunk(
        report, decisions, result, (len(failed.decisions.switches), len(failed.decisions.choices)),
        (result_switches(result), len(decisions.choices)), runs,
    )  # fmt: skip


def result_switches(result: ReplayResult) -> int:
    """Context switches that a run made, those that blocking forces included."""
    return len(result.decisions.switches)
