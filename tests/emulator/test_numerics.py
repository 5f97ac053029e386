"""Interpreted arithmetic against torch, for every type. Runs in a process of its own: interpretation is fixed at import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def interpreted(*args: str) -> subprocess.CompletedProcess:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *args], check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    done = interpreted("tests/emulator/numerics_program.py")
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


CHECKS = [
    *(f"cast:{a}->{b}" for a in ("f32", "f16", "bf16", "f64") for b in ("f32", "f16", "bf16", "e5m2", "e4m3", "i32")),
    *(f"cast:{a}->{b}" for a in ("e5m2", "e4m3") for b in ("f32", "f16", "bf16")),
    *(f"cast:i32->{b}" for b in ("f32", "f16", "bf16")),
    *(f"{op}:{t}" for op in ("add", "sub", "mul", "div", "min", "max", "less", "where", "fma", "neg", "abs", "scalar") for t in ("f32", "f16", "bf16")),
    *(f"dot:{t}" for t in ("f32", "f16", "bf16", "e5m2", "e4m3", "i8")),
    *(f"{op}:{t}" for op in ("sum", "maximum", "argmax", "cumsum", "product", "atomic_add") for t in ("f32", "f16", "bf16")),
    "dot_f16_out:f16", "nan_min:f32", "device_assert:f32", "range_tensor:i32", "descriptor:f16", "stock_launch:f32",
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_equals_torch(lines: dict[str, str], check: str) -> None:
    assert lines.get(check) == "ok"


def test_every_check_is_listed(lines: dict[str, str]) -> None:
    assert set(lines) == set(CHECKS)
