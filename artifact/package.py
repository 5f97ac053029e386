"""`python -m artifact package`: sources, reference data and a run's results in one archive, with checksums and RO-Crate metadata."""

import argparse
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from . import __version__, provenance
from .errors import ArtifactError
from .files import ROOT, sha256, write_bytes, write_text

LIMIT_BYTES = 50_000_000
SKIP_FOLDERS = {
    ".git",
    ".venv",
    ".snakemake",
    "results",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".mypy_cache",
    ".hypothesis",
    "shared",
    "published",
}
RESULT_SUFFIXES = {".csv", ".json", ".md", ".tex", ".pdf", ".svg", ".png", ".html"}
SKIP_RESULTS = {"logs", "resume", "failed", "package"}
CRATE = "ro-crate-metadata.json"
PUBLISHED = "published"  # not results/: whoever unpacks the archive shall make those


def sources(root: Path = ROOT, untracked: bool = False) -> list[Path]:
    """Files of the repository: those that git tracks (with `untracked` also new ones that it does not ignore), or in an unpacked archive all but what runs leave behind."""
    new = ["--cached", "--others", "--exclude-standard"] if untracked else []
    try:
        command = ["git", "-C", str(root), "ls-files", "-z", *new]
        names = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30).stdout.split("\0")
        found = [root / n for n in names if n and (root / n).is_file()]
        if found:
            return sorted(found)
    except (OSError, subprocess.SubprocessError):
        pass
    files = [p for p in root.rglob("*") if p.is_file() and not set(p.relative_to(root).parts) & SKIP_FOLDERS]
    return sorted(p for p in files if p.name not in (CRATE, "SHA256SUMS") and p.suffix != ".pyc")


def outcomes(root: Path, run: Path) -> list[Path]:
    """The report, and the result files of a run, of the build and of the model; no logs."""
    found = [p for p in (root / "results" / "report.html",) if p.is_file()]
    for folder in (run, root / "results" / "build", root / "results" / "model"):
        found += [
            p
            for p in folder.rglob("*")
            if p.is_file() and p.suffix in RESULT_SUFFIXES and not set(p.relative_to(folder).parts) & SKIP_RESULTS
        ]
    return sorted(found)


def place(root: Path, path: Path) -> str:
    """Where a file of the repository stands in the archive."""
    name = path.relative_to(root)
    return str(Path(PUBLISHED, *name.parts[1:]) if name.parts[0] == "results" else name)


def crate(root: Path, run: Path, results: list[Path]) -> str:
    """RO-Crate metadata: the workflow, the run (a CreateAction), and every result with its checksum."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    made = ROCrate(gen_preview=False)
    made.name = f"fusedcc {__version__}"
    made.description = "Fused computation-collective GPU kernels, re-implemented: sources, recorded measurements and results of one run"
    made.license = "https://www.apache.org/licenses/LICENSE-2.0"
    made.root_dataset["version"] = __version__
    workflow = made.add_workflow(root / "Snakefile", "Snakefile", main=True, lang="snakemake")
    entities = [made.add_file(p, place(root, p), properties={"sha256": sha256(p)}) for p in results]
    blocks = [json.loads(p.read_text()) for p in results if p.suffix == ".json" and "started" in p.read_text()]
    times = [b for b in blocks if isinstance(b, dict) and "started" in b]
    action = ContextEntity(
        made,
        "#run",
        properties={
            "@type": "CreateAction",
            "name": f"snakemake on backend {run.name}",
            "startTime": min((b["started"] for b in times), default=provenance.now()),
            "endTime": max((b["ended"] for b in times), default=provenance.now()),
        },
    )
    made.add(action)
    action["instrument"] = workflow
    action["result"] = entities
    made.root_dataset["mentions"] = [action]
    # No modification times: the same content gives the same metadata.
    graph = made.metadata.generate()
    for entity in graph["@graph"]:
        entity.pop("dateModified", None)
        if entity["@id"] == "./":
            entity["datePublished"] = max((b["ended"] for b in times), default=provenance.now())
    return json.dumps(graph, indent=1) + "\n"


def build(root: Path, run: Path) -> tuple[bytes, str, int]:
    """(archive, checksums, number of files). Raises `ArtifactError` when it would be too large."""
    results = outcomes(root, run)
    files = {place(root, p): p.read_bytes() for p in [*sources(root), *results]}
    executable = {str(p.relative_to(root)) for p in sources(root) if p.stat().st_mode & 0o100}
    files[CRATE] = crate(root, run, results).encode()
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"fusedcc-{__version__}/{name}")
            entry.size = len(content)
            entry.mode = 0o755 if name in executable else 0o644
            archive.addfile(entry, io.BytesIO(content))
    content = raw.getvalue()
    if len(content) > LIMIT_BYTES:
        raise ArtifactError(f"archive is {len(content) >> 20} MB; allowed: at most {LIMIT_BYTES >> 20} MB")
    return content, sums, len(files)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact package", description=__doc__)
    p.add_argument("--run", type=Path, default=ROOT / "results" / "emulator", help="folder of the run")
    p.add_argument("--out", type=Path, required=True, help="archive (tar.gz)")
    p.add_argument("--checksums", type=Path, required=True, help="checksum of the archive and of every file in it")
    options = p.parse_args(arguments)
    try:
        content, sums, count = build(ROOT, (ROOT / options.run).resolve())
        write_bytes(options.out, content)
        write_text(options.checksums, f"{sha256(options.out)}  {options.out.name}\n{sums}")
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"package: {options.out}, {count} files, {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
