"""`python -m figures NAME --out DIR ...`: draw one figure from tidy rows, or again from the CSV beside it (`--rows`)."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd

from artifact.errors import ArtifactError

from . import CATALOG, inputs, save


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__)
    parser.add_argument("name", choices=sorted(CATALOG))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--model", type=Path, metavar="DIR", help="folder of the timing model's CSV files")
    parser.add_argument(
        "--timing", type=Path, nargs="*", default=[], metavar="CSV", help="timing rows, measured or recorded"
    )
    parser.add_argument("--claims", type=Path, default=Path("artifact/claims.yaml"), metavar="YAML")
    parser.add_argument("--rows", type=Path, metavar="CSV", help="redraw from a figure's own CSV")
    options = parser.parse_args(arguments)
    module = import_module(f".{CATALOG[options.name]}", __package__)
    try:
        if options.rows is not None:
            rows = pd.read_csv(options.rows)
        else:
            rows = module.rows(inputs.load(options.model, options.timing, options.claims))
            rows = save.through_csv(rows, options.out / f"{options.name}.csv")
        save.save(module.draw(rows), options.name, options.out)
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.name}: {len(rows)} rows, {options.out / options.name}.{{pdf,png,svg,csv}}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
