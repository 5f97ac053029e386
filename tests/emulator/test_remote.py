"""A user's own distributed program on CPU tensors: torch.distributed ranks that compile, each with a companion that interprets."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def start(what: str, world_size: int, tmp_path: Path) -> list[subprocess.Popen]:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [sys.executable, "tests/emulator/remote_program.py", str(rank), str(world_size), str(tmp_path / "store"), what],
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(world_size)
    ]  # fmt: skip


def gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("what", "world_size"), [("works", 2), ("hang", 1)])
def test_distributed_program(what: str, world_size: int, tmp_path: Path) -> None:
    shm = set(os.listdir("/dev/shm"))
    ranks = start(what, world_size, tmp_path)
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err
        assert out.splitlines()[-1] == "ok", out + err
        assert gone([int(out.split()[1])], 3)
    assert set(os.listdir("/dev/shm")) == shm


def test_companion_dies_with_its_caller(tmp_path: Path) -> None:
    (rank,) = start("endless", 1, tmp_path)
    companion = int(rank.stdout.readline().split()[1])
    time.sleep(0.2)
    assert os.path.exists(f"/proc/{companion}")
    rank.kill()
    rank.wait()
    rank.stdout.close()
    rank.stderr.close()
    assert gone([companion], 3)
