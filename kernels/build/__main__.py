"""`python -m kernels.build --out results.csv`: compile every kernel for every target, no GPU needed.

Exit status: 0 what can be built compiles and keeps the ordering rules, 1 something does not (each said in one line), 2 a
wrong argument.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import ProblemError, require
from . import builder
from .targets import TARGETS

HEARTBEAT_S = 15


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernels.build", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="CSV file for the resource rows")
    parser.add_argument("--asm-dir", type=Path, metavar="DIR", help="keep each kernel's assembly and binary here")
    parser.add_argument(
        "--kernel", metavar="NAME", help="build only this entry, or all whose name starts with NAME and a dot"
    )
    parser.add_argument("--target", metavar="NAME", help=f"build only for this target: {', '.join(TARGETS)}")
    parser.add_argument(
        "--catalog", default=builder.DEFAULT_CATALOG, metavar="MODULE", help="module with ENTRIES and launch"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: the cores there are)")
    return parser


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A function to call with the name of each finished kernel: a bar on a terminal, else a line every HEARTBEAT_S seconds."""
    console = Console(stderr=True)
    columns = (
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        spoken = time.monotonic()
        done = 0

        def advance(name: str) -> None:
            nonlocal spoken, done
            done += 1
            bar.update(task, advance=1, description=name)
            if not console.is_terminal and time.monotonic() - spoken > HEARTBEAT_S:
                spoken = time.monotonic()
                print(f"compiled {done} of {total}", file=sys.stderr)

        yield advance


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    started = time.monotonic()
    try:
        require(args.jobs is None or args.jobs >= 1, "jobs", args.jobs, "1 or more")
        pairs = builder.select(args.catalog, args.kernel, args.target)
    except ProblemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with _progress(len(pairs)) as advance:
        report = builder.build(pairs, args.catalog, args.asm_dir, args.jobs, progress=advance)
    builder.write_csv(report.rows, args.out)
    for row in report.rows:
        if row["status"] == "failed" and not str(row["reason"]).startswith("lint: "):
            print(f"failed: {row['kernel']} {row['target']}: {row['reason']}", file=sys.stderr)
    for finding in report.findings:
        print(f"lint: {finding}", file=sys.stderr)
    number = Counter(row["status"] for row in report.rows)
    missing = f", {number['missing']} not built (a library is missing)" if number["missing"] else ""
    print(
        f"build: {number['ok']} of {len(report.rows)} built and ordered as the protocol needs, {number['failed']} failed "
        f"({len(report.findings)} lint findings){missing}; {args.out}, {time.monotonic() - started:.0f} s"
    )
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
