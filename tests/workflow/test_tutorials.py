"""The guides "add a machine", "add a figure" and "add an operator", followed step by step in a copy of the repository."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from artifact.files import ROOT

APPENDIX = ROOT / "artifact" / "appendix"


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, text) of every block of a guide."""
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


def apply(folder: Path, text: str) -> None:
    """Do what a guide's blocks say: a first line `# FILE` writes that file, `# FILE, in NAME` puts the rest at the head of that dictionary."""
    for language, block in blocks(text):
        if language == "sh":
            continue
        head, _, rest = block.partition("\n")
        name, _, dictionary = head.removeprefix("# ").partition(", in ")
        path = folder / name
        if dictionary:
            before = path.read_text()
            opening = f"\n{dictionary} = {{\n"
            assert before.count(opening) == 1
            rest = before.replace(opening, opening + rest)
        path.write_text(rest)


def commands(text: str) -> list[list[str]]:
    """Words of every command in a guide's shell blocks."""
    return [shlex.split(line) for language, block in blocks(text) if language == "sh" for line in block.splitlines()]


@pytest.fixture
def clone(workflow, tmp_path):
    """A copy of its own, without results."""
    folder = tmp_path / "clone"
    shutil.copytree(workflow.folder, folder, ignore=shutil.ignore_patterns("results", ".snakemake"))
    return type(workflow)(folder)


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", (APPENDIX / "EXTEND.md").read_text(), re.MULTILINE | re.DOTALL)
    return found.group(1)


def test_add_a_machine(clone):
    text = section("Add a machine")
    apply(clone.folder, text)
    profile = next((clone.folder / "experiments" / "model" / "profiles").glob("l40s-*.yaml"))
    assert yaml.safe_load(profile.read_text())["name"] == profile.stem
    (command,) = commands(text)
    assert "model_intranode" in clone.planned(*command[1:])
    simulate = """
from experiments.model import intranode, rows
case = next(iter(rows.cases("gemv_all_reduce")))
new, old = ({r["strategy"]: r for r in intranode.timing(m, "gemv_all_reduce", case)} for m in ("l40s-x2", "h200-x2"))
assert new["fused"]["time_us"] > new["fused"]["limit_us"] > 3 * old["fused"]["limit_us"], (new, old)
"""
    done = python(clone.folder, "-c", simulate)
    assert done.returncode == 0, done.stderr
    profile.write_text(profile.read_text().replace(', source: "NVIDIA L40S datasheet"', "", 1))
    done = python(clone.folder, "-m", "experiments.model", "intranode", "--out", str(clone.folder / "out"))
    assert done.returncode != 0 and re.fullmatch(r"error: l40s-x2\.yaml.*source.*\n", done.stderr), done.stderr


def test_add_a_figure(clone):
    text = section("Add a figure")
    apply(clone.folder, text)
    (command,) = commands(text)
    assert command[1:] == ["fig_bulk_times"] and "fig_bulk_times" in clone.planned(*command[1:])
    assert "fig_bulk_times" in clone.planned("figures")
    done = python(
        clone.folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/figures", "-k", "fig_bulk_times or agree"
    )
    assert done.returncode == 0 and int(re.search(r"(\d+) passed", done.stdout)[1]) >= 5, done.stdout[-3000:]


@pytest.fixture
def operator(clone) -> tuple[Path, list[list[str]]]:
    """(folder with the operator, the guide's commands)."""
    text = (APPENDIX / "ADD_AN_OPERATOR.md").read_text()
    apply(clone.folder, text)
    return clone.folder, commands(text)


def test_add_an_operator(operator):
    folder, steps = operator
    assert [words[:4] for words in steps] == [["python", "-m", "emulator", "check"]] * 2 + [
        ["python", "-m", "kernels.build", "--catalog"]
    ]
    for words, said in zip(steps, ("clean: 20 schedules", "clean: 5 schedules", "build: 3 of 3 built"), strict=True):
        done = python(folder, *words[1:])
        assert done.returncode == 0 and done.stdout.startswith(said), done.stdout + done.stderr


@pytest.mark.parametrize("wait", ["entered + peer", "arrived + source * MAX_WGS + pid"])
def test_a_wait_taken_out_is_found(operator, wait):
    folder, steps = operator
    source = folder / "kernels" / "scale_all_gather.py"
    text = source.read_text()
    assert text.count(f"shmem.wait({wait}, epoch)") == 1
    source.write_text(text.replace(f"shmem.wait({wait}, epoch)", "pass"))
    done = python(folder, *steps[0][1:])
    assert done.returncode == 1 and done.stdout.startswith("race at seed "), done.stdout + done.stderr
