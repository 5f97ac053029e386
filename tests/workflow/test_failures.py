"""A command that fails makes its rule, and the run, fail: wrong results, contradicted claims; and the message says where."""

import json
import re

import pytest

from artifact.verdicts import Status, Verdict

WRONG = ("part = tl.sum(total, 1)[None, :]", "part = 1.02 * tl.sum(total, 1)[None, :]")


@pytest.fixture
def broken(workflow):
    """GEMV computes 2 % too much."""
    path = workflow.folder / "kernels" / "gemv_device.py"
    text = path.read_text()
    assert text.count(WRONG[0]) == 1
    path.write_text(text.replace(*WRONG))
    yield workflow
    path.write_text(text)


def test_a_wrong_kernel_fails_the_run_and_is_named(broken):
    target = "results/emulator/verify/smoke.csv"
    done = broken.run(target, "--config", "backend=emulator")
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "completed successfully" not in text and "Traceback" not in text
    named = re.search(
        r"^failed: gemv_all_reduce, case \S*(?:fp32|bf16|fp16)\S*, rank \d, call \d+, seed \d+, max error \S+, bound \S+: .+$", text, re.MULTILINE
    )  # fmt: skip
    assert named, text[-3000:]
    assert "failed: embedding" not in text and "failed: gemm" not in text
    assert named.group(0) in (broken.folder / "results/emulator/logs/verify_cases.smoke.log").read_text()
    assert "results/emulator/logs/verify_cases.smoke.log" in text and not (broken.folder / target).exists()
    assert (
        ",failed,an element is outside its bound" in (broken.folder / "results/emulator/failed/smoke.csv").read_text()
    )


def test_a_contradicted_claim_fails_the_strict_target_only(workflow):
    row = {
        "id": "P4",
        "title": "t",
        "paper": [],
        "this_run": Verdict(Status.CONTRADICTED, "slower").as_dict(),
        "reference": None,
        "model": None,
    }
    made = ["results/emulator/claims.json", "results/emulator/claims.md"]
    for name in workflow.outputs(made[0]):
        path = workflow.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([row]) if name == made[0] else "")
    touched = workflow.run("--touch", made[0])
    assert touched.returncode == 0, touched.stderr
    assert workflow.run("claims").returncode == 0
    done = workflow.run("claims_strict")
    text = done.stdout + done.stderr
    assert done.returncode != 0 and re.search(r"P4.*slower", text), text[-2000:]
    assert not (workflow.folder / "results/emulator/claims_strict.txt").exists()
