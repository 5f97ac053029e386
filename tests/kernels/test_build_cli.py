"""`python -m kernels.build`: rows, exit status, last line, and a real kernel that lost its block barrier."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.build import builder

ROOT = Path(__file__).parents[2]


def _build(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment}
    return subprocess.run(
        [sys.executable, "-m", "kernels.build", *arguments],
        check=False,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
    )


def test_builds_with_the_interpreter_switched_on_around_it(tmp_path):
    out = tmp_path / "new" / "rows.csv"
    arguments = (
        "--catalog",
        "build_kernels",
        "--kernel",
        "right",
        "--out",
        str(out),
        "--asm-dir",
        str(tmp_path / "asm"),
    )
    done = _build(*arguments, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("build: 3 of 3 built and ordered as the protocol needs, 0 failed (0 lint findings); ")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["target"] for row in rows] == ["sm_90", "gfx90a", "gfx942"]
    assert list(rows[0]) == list(builder.COLUMNS)
    assert all(int(row["registers"]) > 0 and 0 < float(row["occupancy"]) <= 1 for row in rows)
    assert sorted(path.suffix for path in (tmp_path / "asm").iterdir()) == [".amdgcn"] * 2 + [".cubin"] + [
        ".hsaco"
    ] * 2 + [".ptx"]


def test_a_compiler_that_dies_is_a_row_and_the_others_are_built(built):
    for target in ("sm_90", "gfx90a", "gfx942"):
        dead, refused, two = (built.row(kernel, target) for kernel in ("aborts", "refused", "two_launches"))
        assert dead["status"] == refused["status"] == two["status"] == "failed"
        assert dead["reason"].startswith("compiler died of signal SIGABRT")
        assert "no_such_name is not defined" in refused["reason"]
        assert "2 launches" in two["reason"]
        assert dead["registers"] == ""
        assert built.row("scale", target)["status"] == "ok"


@pytest.mark.parametrize(
    ("target", "why"),
    [("sm_90", "NVSHMEM's device bitcode is not installed"), ("gfx942", "NVSHMEM is for NVIDIA GPUs")],
)
def test_a_library_that_is_missing_is_said_and_fails_nothing(tmp_path, target, why):
    out = tmp_path / "rows.csv"
    arguments = ("--kernel", "gemm_all_to_all.rdma", "--target", target, "--out", str(out))
    done = _build(*arguments, NVSHMEM_LIB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "0 of 1 built and ordered as the protocol needs, 0 failed (0 lint findings), 1 not built" in done.stdout
    with out.open() as file:
        (row,) = csv.DictReader(file)
    assert (row["status"], row["reason"]) == ("missing", f"not built: {why}")
    assert row["registers"] == row["occupancy"] == ""


def test_a_kernel_that_no_unit_can_hold_fails():
    (row,) = builder.build(builder.select("build_kernels", "too_big", "gfx942"), "build_kernels").rows
    assert (row["status"], row["occupancy"], row["limited_by"]) == ("failed", 0.0, "shared")
    assert row["reason"] == "does not fit: no work-group can be resident, limited by shared"


def test_a_broken_kernel_ends_with_one_line_and_status_1(tmp_path):
    arguments = (
        "--catalog",
        "build_kernels",
        "--kernel",
        "no_barrier",
        "--target",
        "sm_90",
        "--out",
        str(tmp_path / "r.csv"),
    )
    done = _build(*arguments)
    assert done.returncode == 1
    assert "lint: no_barrier sm_90 line" in done.stderr
    assert "no bar.sync between the store of line" in done.stderr
    assert "1 failed (1 lint findings)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "gfx1100"), "target is 'gfx1100'; allowed: sm_90, gfx90a, gfx942"),
        (("--kernel", "gemv"), "kernel is 'gemv'; allowed: gemv_all_reduce"),
        (("--catalog", "no_such_module"), "catalog is 'no_such_module'; allowed: a module with ENTRIES and launch"),
        (("--jobs", "0"), "jobs is 0; allowed: 1 or more"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, words):
    done = _build(*arguments, "--out", str(tmp_path / "r.csv"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {words}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "r.csv").exists()


def test_a_real_kernel_without_its_block_barrier_fails_the_build(tmp_path):
    """The barrier of `shmem.drain` left out of a copy of the project."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "kernels" / "shmem.py"
    before, drain = source.read_text().split("def drain():")
    assert "    tl.debug_barrier()\n" in drain
    source.write_text(before + "def drain():" + drain.replace("    tl.debug_barrier()\n", "    pass\n", 1))
    done = _build("--kernel", "gemv_all_reduce.one_shot.float16", "--out", str(tmp_path / "r.csv"), cwd=tmp_path)
    assert done.returncode == 1
    assert "lint: gemv_all_reduce.one_shot.float16 sm_90 line" in done.stderr
    assert "no bar.sync between the store of line" in done.stderr
    assert "gfx90a line" in done.stderr
    assert "gfx942 line" in done.stderr
