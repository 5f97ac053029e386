"""The worked example of the device API, as a reader starts it: right, and wrong once its waits are taken away."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "kernels" / "examples" / "ring_all_gather.py"


def run(
    *options: str, module: str = "kernels.examples.ring_all_gather", cwd: Path = ROOT
) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", module, *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_processes() -> None:
    done = run("--ranks", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ring_all_gather: 4 ranks (emulator, mode processes, seed 0), 3 calls: all chunks right\n"


def test_replay_finds_no_race() -> None:
    done = run("--ranks", "2", "--mode", "replay", "--calls", "2", "--elements", "600", "--seed", "3")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("shmem.wait(entered, epoch)", "no happens-before"),
        ("shmem.wait(arrived + source * MAX_WGS + pid, epoch)", "which nobody has written"),
    ],
)
def test_replay_finds_a_missing_wait(tmp_path: Path, line: str, report: str) -> None:
    for package in ("kernels", "kernels/examples"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for name in ("shmem.py", "errors.py"):
        (tmp_path / "kernels" / name).write_text((ROOT / "kernels" / name).read_text())
    (tmp_path / "emulator").symlink_to(ROOT / "emulator")
    source = SOURCE.read_text()
    assert line in source
    (tmp_path / "kernels/examples/ring_all_gather.py").write_text(source.replace(line, "pass"))
    done = run("--ranks", "2", "--mode", "replay", "--calls", "2", "--elements", "600", "--seed", "3", cwd=tmp_path)
    assert done.returncode != 0
    assert report in done.stderr


def test_bad_input_is_one_line() -> None:
    done = run("--ranks", "3")
    assert (done.returncode, done.stderr) == (2, "error: world_size is 3; allowed: 1, 2, 4 or 8\n")
