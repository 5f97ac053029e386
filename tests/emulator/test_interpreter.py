"""What kernels hand to a backend: memory operations, orders, inline assembly, external functions, source lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = [
    "plain", "values", "lines", "atomics", "atomic_values", "chain", "asm", "asm_values", "asm_tile", "asm_registered", "asm_unknown",
    "extern", "extern_values", "argument_unknown", "argument_missing",
]  # fmt: skip


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "tests/emulator/interpreter_program.py"]
    done = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("check", CHECKS)
def test_backend_sees(lines: dict[str, str], check: str) -> None:
    assert lines.get(check) == "ok"


def test_every_check_is_listed(lines: dict[str, str]) -> None:
    assert sorted(lines) == sorted(CHECKS)


def test_a_process_that_compiles_is_refused() -> None:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    code = "from emulator import interpreter; interpreter.install()"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "TRITON_INTERPRET is unset in this process; allowed: 1, set before triton is imported" in done.stderr
