"""Recorded measurements: `experiments/reference/<machine>/` with checksums. Inputs of the pipeline, never its outputs."""

import re
from pathlib import Path

from .errors import ArtifactError, require
from .files import ROOT, sha256

NAME = "MANIFEST.sha256"  # lines as `sha256sum` writes and checks them
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")


def folder_of(root: Path) -> Path:
    """Where the records of a repository lie."""
    return root / "experiments" / "reference"


def machines(root: Path = ROOT) -> list[str]:
    """Names of the recorded machines."""
    return sorted(p.parent.name for p in folder_of(root).glob(f"*/{NAME}"))


def gpus(machine: str) -> int:
    """GPUs of a machine, by its name: h200-x2 has two."""
    found = re.search(r"-x(\d+)$", machine)
    return int(found.group(1)) if found else 1


def check_folder(folder: Path) -> list[Path]:
    """All files of a record. Raises `ArtifactError`, one line, for a file that is missing or is not the recorded one."""
    files = []
    for line in (folder / NAME).read_text().splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{path} is missing, but {NAME} beside it lists it")
        if sha256(path) != digest:
            raise ArtifactError(
                f"{path} is corrupt: its checksum is {sha256(path)[:12]}..., {NAME} says {digest[:12]}...; get the file back with: git checkout -- {name}"
            )
        files.append(path)
    return files


def check(reference: str, root: Path = ROOT) -> list[Path]:
    """Timing files (relative to the root) of the record to show: the named one, or for `auto` the one with the most GPUs, if any.

    The checksums of every record are checked. Raises `ArtifactError` for a corrupt or missing file and an unknown name.
    """
    known = machines(root)
    for machine in known:
        check_folder(folder_of(root) / machine)
    if reference == "auto":
        if not known:
            return []
        reference = max(known, key=gpus)
    require(reference in known, "reference", reference, ", ".join([*known, "auto"]))
    paths = [folder_of(root) / reference / f"{operator}.csv" for operator in OPERATORS]
    return [p.relative_to(root) for p in paths if p.is_file()]


def all_files(root: Path = ROOT) -> list[str]:
    """Every file of every record, relative to the root: inputs of the model's validation."""
    return [str(p.relative_to(root)) for machine in machines(root) for p in check_folder(folder_of(root) / machine)]
