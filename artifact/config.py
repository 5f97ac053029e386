"""`python -m artifact config`: check a configuration file, or write the generated files anew."""

import argparse
import sys
from pathlib import Path

from . import config_model
from .errors import ArtifactError
from .files import ROOT, write_text

FILES = {
    ROOT / "config" / "config.yaml": config_model.default_yaml,
    config_model.README: config_model.readme_text,
    config_model.SCHEMA: config_model.schema_text,
}


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact config", description=__doc__)
    p.add_argument("--write", action="store_true", help="write config.yaml, README.md and schema.json from the model")
    p.add_argument("--check", type=Path, default=ROOT / "config" / "config.yaml", metavar="YAML")
    options = p.parse_args(arguments)
    try:
        if options.write:
            for path, make in FILES.items():
                write_text(path, make())
            print(f"config: {len(FILES)} files written")
        else:
            config_model.load(options.check)
            print(f"config: {options.check} is right")
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
