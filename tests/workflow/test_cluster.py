"""The two ways onto a cluster, as the appendix has them: jobs as Slurm would get them, and the launch on two nodes."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from artifact import hardware
from artifact.files import ROOT

COMMANDS = re.findall(r"```sh\n(.*?)\n```", (ROOT / "artifact" / "appendix" / "CLUSTER.md").read_text(), re.DOTALL)
PROFILE = ("--workflow-profile", "profiles/slurm")


def test_the_documented_command_can_be_planned_where_no_gpu_is(workflow):
    words = shlex.split(COMMANDS[0])
    assert words[0] == "snakemake" and tuple(words[-2:]) == PROFILE
    assert {"measure_operator", "verify_cases", "hardware", "all"} <= workflow.planned(*words[1:])


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder of Slurm's commands: sbatch writes down what it was asked for and refuses, the others have nothing to say."""
    for name in ("sbatch", "sinfo", "squeue", "sacct", "sacctmgr", "scontrol", "scancel"):
        act = f'echo "$@" >> "{tmp_path}/asked"; exit 1' if name == "sbatch" else "exit 0"
        (tmp_path / name).write_text(f"#!/bin/sh\n{act}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_slurm_is_asked_for_a_whole_node_by_jobs_that_use_gpus(workflow, slurm):
    environment = workflow.environment | {"PATH": f"{slurm}:{workflow.environment['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "results/gpu/verify/smoke.csv", "results/build/operators.csv", *PROFILE,
         "--slurm-init-seconds-before-status-checks", "1"],
        cwd=workflow.folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and (slurm / "asked").is_file(), done.stderr[-2000:]
    asked = {re.search(r"--comment rule_(\w+)", line)[1]: line for line in (slurm / "asked").read_text().splitlines()}
    verify, operators = asked["verify_cases_wildcards_smoke"], asked["list_operators"]
    assert "-p gpu " in verify and "--gpus=2 " in verify and "--nodes=1 " in verify and "--cpus-per-task=16 " in verify
    assert "--gpus" not in operators and "--cpus-per-task=1 " in operators
    assert "'backend=gpu' 'cluster=true'" in verify  # the job decides as the submitter did


def test_measuring_has_the_node_to_itself(workflow):
    profile = yaml.safe_load((workflow.folder / "profiles" / "slurm" / "config.yaml").read_text())
    assert profile["set-resources"]["measure_operator"] == {"gpu": 2, "nodes": 1, "slurm_extra": "'--exclusive'"}


def test_backend_must_be_named_on_a_cluster(workflow):
    done = workflow.run("-n", "all", "--config", "cluster=true")
    assert "error: config: backend is 'auto'; allowed with cluster: 'emulator' or 'gpu'" in done.stdout + done.stderr


def test_two_launchers_find_each_other_and_the_ranks_say_what_is_missing(tmp_path):
    """On this machine, for two nodes: without GPUs every rank must say so in a line and end."""
    if hardware.gpu_names():
        pytest.skip("this machine has GPUs")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    words = shlex.split(
        COMMANDS[2].replace("HOST:29400", f"localhost:{port}").replace("rows.csv", f"{tmp_path}/rows.csv")
    )
    assert words[0] == "torchrun"
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words[1:]], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for error in (node.communicate(timeout=120)[1] for node in nodes):
        assert "error: backend is 'gpu'; allowed: emulator; there is no GPU here" in error
        assert "experiments.verify FAILED" in error  # the launcher started it, hence had met the other
