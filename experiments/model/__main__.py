"""`python -m experiments.model intranode|scaleout|validate|all --out DIR`: the model's rows as tidy CSV files."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import intranode, rows, runner, scaleout, studies, validation
from .errors import ModelError


def _intranode(args: argparse.Namespace) -> str:
    files = {**intranode.run(runner.mapper), **studies.run(runner.mapper), "machine_profiles": scaleout.profile_rows()}
    _write(files, args.out, "intranode")
    return f"{len(files['intranode'])} times of {len({r['machine'] for r in files['intranode']})} machines"


def _scaleout(args: argparse.Namespace) -> str:
    files = {**scaleout.run(runner.mapper, args.max_nodes), "simulation_setup": scaleout.setup_rows()}
    _write(files, args.out, "scaleout")
    return f"{len(files['scaleout_reduction'])} scale-out comparisons up to {args.max_nodes} nodes"


def _validate(args: argparse.Namespace) -> str:
    files, message = validation.run(args.reference)
    _write(files, args.out, "validate")
    return message


def _write(files: dict[str, list[dict]], out: Path, command: str) -> None:
    for name, content in files.items():
        rows.write(content, out / f"{name}.csv", f"python -m experiments.model {command}")


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], str], ...]] = {
    "intranode": (_intranode,),
    "scaleout": (_scaleout,),
    "validate": (_validate,),
    "all": (_validate, _intranode, _scaleout),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0, or 2 after one line on stderr when an input cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m experiments.model", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--out", type=Path, required=True, help="folder for the CSV files; created if missing")
    parser.add_argument(
        "--reference",
        type=Path,
        default=rows.ROOT / "experiments" / "reference",
        help="recorded measurements to validate against",
    )
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=128,
        help="largest scale-out simulation: 16 to 1024 (1024 takes minutes and gigabytes)",
    )
    args = parser.parse_args(argv)
    start = time.monotonic()
    try:
        messages = [step(args) for step in COMMANDS[args.command]]
    except (ModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {'; '.join(messages)} (model, {time.monotonic() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
