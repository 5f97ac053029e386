"""`python -m artifact.judge`: judge the claims on result files; or, with --strict, fail if a judged claim was contradicted."""

import argparse
import sys
from pathlib import Path

from . import claims, evidence, render
from .errors import ArtifactError
from .files import write_json, write_text


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m artifact.judge", description=__doc__)
    p.add_argument("--backend", choices=("emulator", "gpu"), default="emulator")
    p.add_argument("--verify", type=Path)
    p.add_argument("--resources", type=Path)
    p.add_argument("--operators", type=Path)
    p.add_argument("--measured", nargs="*", type=Path, default=[])
    p.add_argument("--recorded", nargs="*", type=Path, default=[])
    p.add_argument("--model", nargs="*", type=Path, default=[])
    p.add_argument("--out", type=Path, help="JSON file for the verdicts")
    p.add_argument("--text", type=Path, help="Markdown file for the verdicts; with --strict: what was found")
    p.add_argument(
        "--strict", type=Path, metavar="JSON", help="verdicts of an earlier call; exit 1 if a claim is contradicted"
    )
    return p


def run(options: argparse.Namespace) -> int:
    """Judge or check; prints the summary."""
    if options.strict:
        lines = claims.strict(options.strict)
        text = "\n".join(lines) if lines else "no claim is contradicted"
        print(text)
        if options.text and not lines:
            write_text(options.text, text + "\n")
        return 1 if lines else 0
    found = evidence.load(
        options.backend,
        options.verify,
        options.resources,
        options.operators,
        options.measured,
        options.recorded,
        options.model,
    )
    judged = claims.judge_all(found)
    rows = claims.as_rows(judged)
    if options.out:
        write_json(options.out, rows)
    if options.text:
        write_text(options.text, render.verdicts_markdown(rows, options.backend))
    print(claims.summary(rows))
    return 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(parser().parse_args(arguments))
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
