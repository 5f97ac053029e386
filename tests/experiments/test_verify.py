"""Verification in the emulator: right kernels pass, broken ones and dead ranks fail with one line that says where."""

import csv
import sys
from pathlib import Path

import pytest

from experiments.errors import ExperimentError
from experiments.verify import __main__ as cli
from experiments.verify import program

CASE = "33x1.b1.fp32.w2"


def verify(tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, str]]]:
    out = tmp_path / "rows.csv"
    status = cli.main(["--out", str(out), *arguments])
    with out.open() as file:
        return status, list(csv.DictReader(file))


def cases(tmp_path: Path, world: int = 2, calls: int = 3) -> list[str]:
    path = tmp_path / "cases.csv"
    header = "case,dtype,world_size,calls,skew_us,changing,seed,sample,m,k,batch,algorithm,transport,bias,residual,fenced,order"
    path.write_text(f"{header}\n{CASE},float32,{world},{calls},500,0,7,1,40,24,1,two_phase,peer,0,0,0,remote_first\n")
    return ["--operator", "gemv_all_reduce", "--cases", str(path)]


def test_right_kernels_pass_with_a_row_per_rank_and_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = verify(tmp_path, *cases(tmp_path))
    assert status == 0
    assert [(r["call"], r["rank"]) for r in found] == [(str(c), str(r)) for r in range(2) for c in range(3)]
    assert all(r["status"] == "ok" and float(r["max_abs_error"]) <= float(r["bound"]) for r in found)
    assert all(int(r["remote_stores"]) > 0 and int(r["flags_delivered"]) > 0 for r in found)
    assert "1 cases, 6 rows, 0 failed" in capsys.readouterr().out.splitlines()[-1]


def test_a_killed_rank_is_a_failed_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    import killer

    monkeypatch.setattr(program, "run", killer.kill_rank_one)
    status, found = verify(tmp_path, *cases(tmp_path))
    assert status == 1
    assert len(found) == 1
    assert found[0]["status"] == "failed"
    assert "rank 1" in found[0]["reason"]
    assert "failed: gemv_all_reduce" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--world", "3"], "world_size is 3"),
        (["--case", "no such case"], "selection is 'no such case'"),
        (["--backend", "gpu-virtual", "--fault", "drop_wait"], "--fault is 'drop_wait'"),
        (["--graph-replays", "10"], "--graph-replays is 10; allowed: GPUs only"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        cli.main(["--out", str(tmp_path / "rows.csv"), *arguments])
    assert str(caught.value).startswith(complaint)


def test_compare_takes_no_nan_and_no_wrong_shape() -> None:
    import torch

    exact, bound = torch.zeros(3, dtype=torch.float64), torch.full((3,), 0.5, dtype=torch.float64)
    assert program.compare(torch.tensor([0.1, 0.0, 0.4]), exact, bound) == (pytest.approx(0.4), 0.5, True)
    assert program.compare(torch.tensor([0.1, float("nan"), 0.0]), exact, bound) == (float("inf"), 0.5, False)
    assert program.compare(torch.tensor([0.1, 0.6, 0.0]), exact, bound)[2] is False
    assert program.compare(torch.zeros(2), exact, bound)[2] is False
