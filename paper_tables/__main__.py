"""`python -m paper_tables table_NAME --out DIR ...`: render one table from this run's result files."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from artifact.errors import ArtifactError

from . import CATALOG, inputs, render


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m paper_tables", description=__doc__)
    parser.add_argument("name", choices=[f"table_{name}" for name in CATALOG])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    inputs.add_options(parser)
    options = parser.parse_args(arguments)
    module = import_module(f".{options.name.removeprefix('table_')}", __package__)
    try:
        frame = module.rows(inputs.from_options(options))
        render.write(frame, options.name, options.out)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.name}: {len(frame)} rows, {options.out / options.name}.{{tex,md,html,csv}}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
