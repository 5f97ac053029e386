"""`python -m artifact documents`: the parts of README and appendix that come from claims.yaml, made anew or checked."""

import argparse
import sys

from . import render
from .errors import ArtifactError
from .files import ROOT, write_text


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact documents", description=__doc__)
    p.add_argument("--check", action="store_true", help="change nothing; exit 1 if a part is out of date")
    options = p.parse_args(arguments)
    stale = []
    try:
        for path in render.documents(ROOT):
            text = path.read_text()
            fresh = render.fill(text, path.name)
            if fresh != text:
                stale.append(path.name)
                if not options.check:
                    write_text(path, fresh)
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"documents: {', '.join(stale) or 'none'} {'out of date' if options.check else 'written anew'}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
