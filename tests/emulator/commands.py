"""The emulator's commands as tests run them: in a process of their own, where kernels are interpreted."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def emulator(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "emulator", *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def check(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return emulator("check", *words, cwd=cwd)


DRIVER = """
import contextlib, io, json, sys
from emulator.__main__ import main

answers = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(words)
    answers.append([status, out.getvalue(), err.getvalue()])
json.dump(answers, sys.stdout)
"""


def checks(commands: list[list], cwd: Path) -> dict[str, tuple[int, str, str]]:
    """`several`, of `check`; keys are the words after it."""
    return {
        key.removeprefix("check "): answer for key, answer in several([["check", *c] for c in commands], cwd).items()
    }


def several(commands: list[list], cwd: Path) -> dict[str, tuple[int, str, str]]:
    """(exit status, stdout, stderr) of several commands in one process, by their words: importing torch takes longer than most of them."""
    commands = [[str(word) for word in words] for words in commands]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps(commands), cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {" ".join(words): tuple(answer) for words, answer in zip(commands, json.loads(done.stdout), strict=True)}
