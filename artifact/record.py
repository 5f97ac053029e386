"""`python -m artifact.record ... -- COMMAND`: run a command that writes one result file, check the file, lay its provenance beside it.

Exit status: that of the command; 1 when its file does not fit the schema; 2 for a wrong argument. Rows of a failed command are kept under --keep,
since Snakemake deletes the outputs of failed jobs.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from . import provenance, results
from .errors import ArtifactError, require
from .files import ROOT, write_bytes
from .sources import closure

UNFINISHED = 75  # EX_TEMPFAIL: the command has cases left and goes on when it is run again


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m artifact.record", description=__doc__.splitlines()[0])
    p.add_argument("--kind", action="append", required=True, help="kind of each --out, in their order")
    p.add_argument(
        "--out", action="append", required=True, type=Path, help="file that the command writes; may be repeated"
    )
    p.add_argument("--backend", required=True)
    p.add_argument("--machine", required=True)
    p.add_argument("--seed", type=int)
    p.add_argument("--sources", nargs="*", default=[], help="modules whose import closure is hashed")
    p.add_argument("--keep", type=Path, default=Path("results/failed"), help="folder for the rows of a failed command")
    p.add_argument(
        "--resume",
        type=Path,
        help="folder where an unfinished measurement goes on; {partial} in the command names the file",
    )
    p.add_argument("command", nargs=argparse.REMAINDER)
    return p


def _partial(options: argparse.Namespace, files: list[Path]) -> Path | None:
    """Where a resumable command writes: named by the code's hash, so that changed code never goes on with old rows."""
    if options.resume is None:
        return None
    options.resume.mkdir(parents=True, exist_ok=True)
    return options.resume / f"{options.out[0].stem}.{provenance.content_hash(files)[:12]}.csv"


def _execute(command: list[str], partial: Path | None) -> int:
    """Exit status of the command; one that can resume is run again while it reports cases left and its rows grow."""
    size = -1
    while True:
        done = subprocess.run(command, check=False).returncode
        grown = partial.stat().st_size if partial is not None and partial.exists() else 0
        if done != UNFINISHED or partial is None or grown <= size:
            return done
        size = grown


def run(options: argparse.Namespace) -> int:
    """Run, check, record."""
    command = [c for c in options.command if c != "--"] if options.command[:1] == ["--"] else options.command
    require(bool(command), "command", "", "one after --")
    require(
        len(options.kind) == len(options.out),
        "--kind",
        len(options.kind),
        f"one for each of the {len(options.out)} --out",
    )
    files = [ROOT / name for name in closure(*options.sources)]
    partial = _partial(options, files)
    started = provenance.now()
    for out in options.out:
        out.parent.mkdir(parents=True, exist_ok=True)
    done = _execute([c.replace("{partial}", str(partial)) for c in command], partial)
    if partial is not None and partial.exists():
        for suffix in (".csv", ".json"):
            if partial.with_suffix(suffix).exists():
                write_bytes(options.out[0].with_suffix(suffix), partial.with_suffix(suffix).read_bytes())
    if done:
        for out in (o for o in options.out if o.exists()):
            options.keep.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out, options.keep / out.name)
            print(f"rows kept in {options.keep / out.name}", file=sys.stderr)
        return done
    for out, kind in zip(options.out, options.kind, strict=True):
        results.read(out, kind)
        block = provenance.collect(
            backend=options.backend,
            machine=options.machine,
            command=" ".join(command),
            started=started,
            sources=files,
            seed=options.seed,
        )
        provenance.write(out, block)
    return 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(parser().parse_args(arguments))
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
