"""A copy of the repository's files in a folder with a space in its path, and a way to run the workflow there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from artifact import package
from artifact.files import ROOT


class Workflow:
    """Snakemake in one folder, with no environment but PATH and HOME."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": str(folder / "home")}

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "snakemake", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def planned(self, *arguments: str) -> set[str]:
        """Rules that a dry run would execute."""
        done = self.run("-n", *arguments)
        text = done.stdout + done.stderr
        assert done.returncode == 0, text[-2000:]
        if "Nothing to be done" in text:
            return set()
        lines = text.split("Job stats:")[1].splitlines()
        rows = [line.split() for line in lines[3:]]
        return {r[0] for r in rows[: next(i for i, r in enumerate(rows) if r and r[0] == "total")]}

    def outputs(self, *targets: str) -> list[str]:
        """Every file that the targets' rules write."""
        done = self.run("--summary", *targets)
        assert done.returncode == 0, done.stderr[-2000:]
        return [line.split("\t")[0] for line in done.stdout.splitlines() if line.startswith("results/")]


@pytest.fixture(scope="session")
def copy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("workflow") / "a clone"
    for path in package.sources(ROOT, untracked=True):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (folder / "home").mkdir()
    return folder


@pytest.fixture(scope="session")
def workflow(copy: Path) -> Workflow:
    return Workflow(copy)
