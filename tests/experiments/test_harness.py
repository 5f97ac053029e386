"""The whole harness on a stand-in GPU: a real kernel, real checks, a clock that the test winds."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

PROGRAM = """
import fake_gpu
fake_gpu.install()
import torch
from experiments.measure import arms, program, table, limits, run
from experiments import ranks, rows

class Source(ranks._Ranks):
    def run(self, program, *args, timeout_s=0.0):
        return [program(rank, *args)]

def wrong(bench):
    good = before(bench)
    broken = arms.Arm("broken", "bulk", "none", lambda: lambda slot: torch.zeros(1, bench.problem.m))
    refused = arms.Arm("refused", "bulk", "none", lambda: (_ for _ in ()).throw(arms.Unavailable("no such thing")))
    return [a for a in good if a.name in ("fused.two_phase", "own", "mv")] + [broken, refused]

before, arms.of = arms.of, wrong
run.probe = lambda source, quick, samples=3: ([], limits.Rates(4000.0, {"float32": 50.0}))
rank = fake_gpu.Rank()
case = dict(case="tiny", model="m", source="s", dtype="float32", m=9, k=20, batch=1)
out = run.Path(OUT)
def go(limit):
    return run.measure(Source(1), "gemv_all_reduce", [case, case | {"case": "second"}], "fake-x1", out, run.Clock(limit), 6, 2)
first = go(0.0)
print("FIRST", first.line())
print("SECOND", go(600.0).line(), "|", *first.left)
print("THIRD", go(600.0).line())
for row in rows.read(out, rows.TIMING):
    if row["case"] == "tiny" and row["sample"] in ("", "0") and row["mode"] == "graph":
        print("ROW", row["arm"], row["status"], row["time_us"], row["reason"])
"""


def test_measuring_writes_each_case_checks_it_and_resumes(tmp_path: Path) -> None:
    code = f"OUT = {str(tmp_path / 'rows.csv')!r}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PYTHONPATH": f"{HERE}:{HERE.parents[1]}",
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()

    def said(word: str) -> str:
        return next(line for line in lines if line.startswith(word))

    assert "0 cases measured" in said("FIRST")
    assert "2 left" in said("FIRST")
    assert "2 cases measured, 0 found done, 2 failures | tiny second" in said("SECOND")
    assert "0 cases measured, 2 found done, 0 failures" in said("THIRD")
    assert "ROW fused.two_phase ok 10 " in done.stdout  # what the stand-in's clock says
    assert "ROW own ok 10 " in done.stdout
    assert "ROW mv ok 0 " in done.stdout
    assert "ROW broken failed  wrong result on rank 0" in done.stdout
    assert "ROW refused missing  no such thing" in done.stdout
    notes = (tmp_path / "rows.json").read_text()
    assert '"worst_check"' in notes
    assert '"seed"' in notes
