"""On a machine with GPUs: verification on virtual ranks and on all GPUs, replayed graphs, one measured case, the timeline."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(GPUS == 0, reason="no GPU here")


def run(module: str, *arguments: str) -> subprocess.CompletedProcess:
    """A command line of the experiments in a process of its own: virtual ranks must set CUDA up themselves."""
    return subprocess.run(
        [sys.executable, "-m", f"experiments.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("operator", ["gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all"])
def test_two_virtual_ranks(tmp_path: Path, operator: str) -> None:
    out = tmp_path / "rows.csv"
    done = run(
        "verify", "--backend", "gpu-virtual", "--sample", "--world", "2", "--operator", operator, "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert {r["status"] for r in rows(out)} <= {"ok", "missing"}
    assert any(r["status"] == "ok" for r in rows(out))


def test_a_thousand_replays(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    options = [
        "--sample",
        "--world",
        "2",
        "--operator",
        "gemv_all_reduce",
        "--graph-replays",
        "1000",
        "--out",
        str(out),
    ]
    done = run("verify", "--backend", "gpu-virtual", *options)
    assert done.returncode == 0, done.stderr
    assert {r["status"] for r in rows(out)} == {"ok"}


@pytest.mark.skipif(GPUS < 2, reason="one GPU here")
def test_all_gpus(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    world = str(max(w for w in (2, 4, 8) if w <= GPUS))
    done = run("verify", "--backend", "gpu", "--sample", "--world", world, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert {r["status"] for r in rows(out)} == {"ok"}


def test_one_measured_case_is_right_and_above_its_limit(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    case = ["--operator", "gemv_all_reduce", "--case", "llama3-70b.o.tp8.b1", "--samples", "6", "--out", str(out)]
    done = run("measure", *case)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert not [r for r in found if r["status"] == "failed"]
    own = [float(r["time_us"]) for r in found if r["arm"] == "own" and r["mode"] == "graph"]
    assert len(own) == 6
    limit = next(float(r["limit_us"]) for r in found if r["arm"] == "own")
    assert limit <= min(own) < 10 * limit
    assert json.loads(out.with_suffix(".json").read_text())["runs"][0]["rates"]["read_gbs"] > 100


def test_the_timeline_has_every_work_group(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    done = run("record", "--machine", "test-x1", "--only", "timeline", "--time-limit", "200", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    found = [r for r in rows(folder / "timeline.csv") if r["arm"] == "fused"]
    assert {"start", "computed", "stored", "end"} <= {r["event"] for r in found}
    for operator in {r["operator"] for r in found}:
        mine = [r for r in found if r["operator"] == operator]
        groups = {r["work_group"] for r in mine}
        assert {r["work_group"] for r in mine if r["event"] == "end"} == groups
