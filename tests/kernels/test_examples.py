"""The example programs as a reader starts them: torchrun, gloo, CPU."""

import os
import re
import subprocess
import sys

import pytest
from torch_ranks import ROOT


def torchrun(ranks: int, module: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [*command, "-m", f"kernels.examples.{module}", *options],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


LONG = pytest.mark.skipif("FUSEDCC_LONG" not in os.environ, reason="16 processes: set FUSEDCC_LONG=1")
EIGHT = [pytest.param(module, 8, marks=LONG) for module in ("dlrm", "decoder", "moe")]


@pytest.mark.parametrize(("module", "ranks"), [("dlrm", 2), ("decoder", 4), ("moe", 2), *EIGHT])
def test_check_compares_fused_with_bulk(module, ranks):
    done = torchrun(ranks, module, "--check")
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    assert line.startswith(f"{module}: {ranks} ranks (cpu, gloo): fused equals bulk: ")
    # Two ways to the same numbers round differently somewhere: exact equality would mean that one way ran twice.
    assert float(re.search(r"gradients by (\S+)", line)[1]) > 0


@pytest.mark.parametrize(
    ("environment", "wrong"), [({}, "RANK is None"), ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'")]
)
def test_without_torchrun_one_line_says_how(environment, wrong):
    command = [sys.executable, "-m", "kernels.examples.dlrm"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"error: {wrong}; allowed: a number, which torchrun sets: torchrun --nproc-per-node 4 -m kernels.examples.dlrm"
    )
