"""Documented commands exist; mistakes end in one line, quickly; Snakemake's and the formatters' checks are clean."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from artifact import catalogue, claims
from artifact.files import ROOT

DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "artifact" / "appendix").glob("*.md")))
BIN = Path(sys.executable).parent
IN_TEXT = re.compile(r"`((?:snakemake|python -m|make) [^`]*)`")
IN_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documented() -> list[str]:
    """Commands of README and appendix, in the text or in blocks, without comments."""
    found = set()
    for path in DOCUMENTS:
        text = path.read_text()
        found |= set(IN_TEXT.findall(text))
        if path.name in ("EXTEND.md", "ADD_AN_OPERATOR.md"):  # their blocks build on one another: test_tutorials
            continue
        found |= {line.partition("#")[0].strip() for block in IN_BLOCK.findall(text) for line in block.splitlines()}
    return sorted(c for c in found if c and "..." not in c and "<" not in c)


def test_documents_name_commands():
    assert len(documented()) > 15


def test_every_documented_target_can_be_planned(workflow):
    targets = set()
    for command in documented():
        words = shlex.split(command)
        if words[0] == "snakemake" and not any(w.startswith("-") for w in words):
            targets |= set(words[1:])
    assert {"all", "full", "smoke", "claims_strict", "package"} <= targets
    assert workflow.planned(*sorted(targets))


def test_every_documented_option_can_be_planned(workflow):
    """Backend gpu is asked for what it lacks here, and nothing else."""
    commands = [
        shlex.split(c) for c in documented() if c.startswith("snakemake ") and " -" in c and "--unlock" not in c
    ]
    assert len(commands) >= 2
    for command in commands:
        done = workflow.run("-n", *command[1:])
        text = done.stdout + done.stderr
        assert done.returncode == 0 or "error: backend is 'gpu'; needs 2 GPUs" in text, command


def test_every_documented_make_target_exists():
    targets = {shlex.split(c)[1] for c in documented() if c.startswith("make ")}
    assert {"all", "smoke", "install"} <= targets
    done = subprocess.run(["make", "-n", *sorted(targets)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_figure_and_table_is_a_target(workflow):
    names = [*catalogue.existing("figures", catalogue.FIGURES), *catalogue.existing("paper_tables", catalogue.TABLES)]
    planned = workflow.planned(*names)
    assert set(names) <= planned
    assert {c.target for c in claims.load().claims} <= set(names)


def test_documented_python_modules_exist():
    for command in documented():
        words = shlex.split(command)
        if words[:2] != ["python", "-m"]:
            continue
        folder = ROOT.joinpath(*words[2].split("."))
        assert folder.with_suffix(".py").is_file() or (folder / "__main__.py").is_file(), command
        if words[2] == "artifact":
            assert (
                subprocess.run(
                    [sys.executable, "-m", "artifact", words[3], "--help"], cwd=ROOT, capture_output=True, check=False
                ).returncode
                == 0
            ), command


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--config", "backend=gpu"], "error: backend is 'gpu'; needs 2 GPUs with peer access"),
        (["--config", "backend=cuda"], "error: config: backend is 'cuda'; allowed: 'auto', 'emulator' or 'gpu'"),
        (["--config", "backned=gpu"], "error: config: unknown key 'backned'; allowed: backend"),
        (["--config", "reference=nowhere"], "error: reference is 'nowhere'; allowed:"),
        (["--config", "gpu={samples: 1}"], "error: config: gpu.samples is '1'; allowed: greater than or equal to 10"),
    ],
)
def test_mistakes_end_in_one_line(workflow, options, expected):
    if options[-1] == "backend=gpu":
        from artifact import hardware

        if hardware.peer_access():
            pytest.skip("this machine has GPUs with peer access")
    start = time.monotonic()
    done = workflow.run("-n", "all", *options)
    text = (done.stdout + done.stderr).strip()
    assert done.returncode != 0
    assert expected in text and "Traceback" not in text
    assert len([line for line in text.splitlines() if line.startswith("error")]) == 1
    assert time.monotonic() - start < 60  # seconds when the machine is free


def test_a_corrupt_reference_file_ends_in_one_line(workflow):
    manifests = sorted((workflow.folder / "experiments" / "reference").glob("*/MANIFEST.sha256"))
    if not manifests:
        pytest.skip("nothing is recorded")
    victim = next(manifests[0].parent.glob("*.csv"))
    whole = victim.read_bytes()
    victim.write_bytes(whole.replace(b"1", b"2", 1))
    try:
        done = workflow.run("-n", "all")
    finally:
        victim.write_bytes(whole)
    text = done.stdout + done.stderr
    assert done.returncode != 0 and f"{victim.name} is corrupt: its checksum is" in text and "Traceback" not in text


def test_snakemake_lint_is_clean(workflow):
    done = workflow.run("--lint")
    assert done.returncode == 0, done.stdout + done.stderr


def test_format_of_rules():
    done = subprocess.run(
        [BIN / "snakefmt", "--no-sort", "--check", "Snakefile", "artifact/workflow/rules"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_format_of_python():
    folders = ["artifact", "tests/artifact", "tests/workflow"]
    for command in ([BIN / "ruff", "check"], [BIN / "ruff", "format", "--check"]):
        done = subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_profiles():
    default = yaml.safe_load((ROOT / "profiles" / "default" / "config.yaml").read_text())
    assert default["cores"] and default["rerun-incomplete"] is True and "gpu=1" in default["resources"]
    slurm = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())
    assert slurm["executor"] == "slurm" and {"backend=gpu", "cluster=true"} <= set(slurm["config"])
