"""`python -m emulator check` and the pytest fixture judge kernels in other people's idioms; mistakes end in one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulator.commands import ROOT, check, checks, emulator

FOREIGN = "tests/emulator/foreign"
# Program, arguments, what the finding says ("" for a clean one).
JUDGED = [
    ("ring_all_reduce_cas", [], ""),
    ("one_shot_relaxed", [], r"the flag `pad\[\d\]` of rank \d \(one_shot_relaxed.py:\d+\) was written relaxed, with no fence before it"),
    ("one_shot_relaxed", ["release"], r"no block barrier is between the access and the release of the flag `pad\[\d\]`"),
    ("plain_spin", [], r"accesses with a plain load what rank \d WG \d uses as a flag, which orders nothing"),
    ("ptx_barrier", [], ""),
    ("ptx_barrier", ["release"], r"the flag `pad\[\d\]` of rank \d \(ptx_barrier.py:.* was written relaxed, with no fence before it"),
    ("ptx_barrier", ["before"], r"no block barrier is between the access and the release of the flag"),
    ("ptx_barrier", ["after"], r"was acquired by one thread of rank \d WG \d, with no block barrier before the access by another"),
]  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple, tuple]:
    """(status, stdout, verdict) of each of `JUDGED`."""
    folder = tmp_path_factory.mktemp("verdicts")
    commands = [
        [
            f"{FOREIGN}/{name}.py::program",
            "--args",
            json.dumps(args),
            "--seeds",
            40,
            "--jobs",
            1,
            "--json",
            folder / f"{number}.json",
        ]
        for number, (name, args, _) in enumerate(JUDGED)
    ]
    answers = checks(commands, ROOT).values()
    verdicts = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(JUDGED))]
    assert len(list(folder.iterdir())) == len(JUDGED)  # nothing is left of writing them
    return {(n, *a): (status, out, v) for (n, a, _), (status, out, _), v in zip(JUDGED, answers, verdicts, strict=True)}


@pytest.mark.parametrize(("name", "args", "says"), JUDGED, ids=[" ".join([n, *a]) for n, a, _ in JUDGED])
def test_kernels_of_other_styles(judged: dict, name: str, args: list[str], says: str) -> None:
    status, out, verdict = judged[name, *args]
    assert status == (1 if says else 0)
    assert verdict["clean"] == (not says)
    if not says:
        assert out.startswith(f"clean: 40 schedules of {FOREIGN}/{name}.py::program on 2 ranks")
        return
    found = verdict["finding"]
    assert re.search(says, found["text"]) and found["text"] in out
    assert sum(found["now"]) <= sum(found["was"]) and found["trace"]
    assert all(f"  {line}\n" in out for line in found["trace"])


def test_exit_statuses() -> None:
    clean, wrong = f"{FOREIGN}/ring_all_reduce_cas.py::program", f"{FOREIGN}/plain_spin.py::program"
    assert [check(program, "--seeds", 2).returncode for program in (clean, wrong, "nowhere.py::program")] == [0, 1, 2]


def test_the_printed_command_shows_the_finding_again(tmp_path: Path) -> None:
    program = f"{FOREIGN}/ptx_barrier.py::program"
    options = [
        "--first",
        5,
        "--seeds",
        3,
        "--world",
        4,
        "--schedulers",
        "pct,behind",
        "--args",
        '["before"]',
        "--resident",
        3,
        "--ignore",
        "x,y",
    ]
    first = check(program, *options, "--jobs", 1)
    command = re.search(r"^replay: (python -m emulator .*)$", first.stdout, re.MULTILINE)[1]
    assert "--seed 5 --world 4 --resident 3" in command and "--schedulers behind" in command
    again = subprocess.run(
        command.replace("python", sys.executable, 1), shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert again.stdout.partition("finding:")[0] == first.stdout.partition("finding:")[0]


MINE = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x):
    tl.store(x + tl.arange(0, 16), 1)

@triton.jit
def waits(flag):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") != 1:
        pass

@triton.jit
def unknown(flag):
    tl.inline_asm_elementwise("frobnicate.u32 $0, 1;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)

def clean(symm):
    symm.launch(kernel, 1, {"x": symm.empty(16, torch.float32, name="x")})

def raises(symm):
    raise KeyError("no such thing")

def asserts(symm):
    assert symm.rank == 0, "only rank 0 is right"

def too_many(symm):
    symm.launch(kernel, 9, {"x": symm.empty(16, torch.float32)})

def hangs(symm):
    symm.launch(waits, 1, {"flag": symm.empty(1, torch.int32, name="flag")})

def outside(symm):
    symm.launch(kernel, 1, {"x": symm.empty(8, torch.float32, name="small")})

@triton.jit
def take_ticket(counter, out):
    tl.store(out + tl.program_id(0), tl.atomic_add(counter, 1, sem="relaxed", scope="gpu"))

def rare(symm, order):
    out, counter = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    symm.launch(take_ticket, 4, {"counter": counter, "out": out})
    assert out.tolist() != order

def assembly(symm):
    symm.launch(unknown, 1, {"flag": symm.empty(1, torch.int32, name="flag")})
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MINE)
    (folder / "broken.py").write_text("import no_such_module\n")
    (folder / "syntax.py").write_text("def f(:\n")
    return folder


def test_jobs_do_not_change_the_finding(mine: Path) -> None:
    """Work-groups that take tickets in an order that few seeds show: the lowest of these is the finding, in a later batch."""
    found = []
    for jobs in (1, 3):
        file = mine / f"{jobs}.json"
        words = [
            "--args",
            "[[3, 1, 2, 0]]",
            "--world",
            1,
            "--seeds",
            400,
            "--no-shrink",
            "--jobs",
            jobs,
            "--json",
            file,
        ]
        done = check("mine.py::rare", *words, cwd=mine)
        assert done.returncode == 1, done.stderr
        found.append(json.loads(file.read_text())["finding"])
        file.unlink()
    assert found[0] == found[1]
    assert found[0]["kind"] == "result" and found[0]["seed"] == 117


WRONG = [
    (["nowhere.py::clean"], "program file is 'nowhere.py'; allowed: an existing Python file"),
    (["mine.py::nothing"], "program is 'mine.py::nothing', but mine.py has no function 'nothing'"),
    (["mine.py"], "program is 'mine.py'; allowed: 'module:function', 'path.py::function' or a function"),
    (["broken.py::f"], "program is 'broken.py::f', which cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
    (["syntax.py::f"], "program is 'syntax.py::f', which cannot be imported: SyntaxError: invalid syntax"),
    (["mine.py::clean", "--world", 0], "world_size is 0; allowed: 1 or more"),
    (["mine.py::clean", "--resident", 0], "resident is 0; allowed: 1 or more"),
    (["mine.py::clean", "--seeds", 0], "seeds is 0; allowed: 1 or more"),
    (["mine.py::clean", "--first", -1], "first is -1; allowed: 0 or more"),
    (["mine.py::clean", "--jobs", 0], "jobs is 0; allowed: 1 or more"),
    (["mine.py::clean", "--seed", 3, "--seeds", 9], "--seed is 3; allowed: without --seeds and --first"),
    (["mine.py::clean", "--schedulers", "random"], "personality is 'random'; allowed: uniform, pct, round_robin, ahead, behind or None"),
    (["mine.py::clean", "--args", "4"], "--args is '4'; allowed: a list in JSON, such as '[4, \"sum\"]'"),
    (["mine.py::clean", "--args", "[4]"], "program is 'mine.py::clean': rank 0 host raised TypeError"),
    (["mine.py::raises"], "program is 'mine.py::raises': rank 0 host raised KeyError at mine.py:22: 'no such thing'"),
    (["mine.py::too_many"], "program is 'mine.py::too_many': rank 1 host raised EmulatorError at mine.py:28: grid is 9; allowed: up to 4"),
    (["mine.py::assembly"], "program is 'mine.py::assembly': rank 1 WG 0 raised Unsupported at mine.py:16: inline assembly 'frobnicate.u32 $0, 1' has no emulation"),
    (["mine.py::clean", "--heap-bytes", 8], "program is 'mine.py::clean': rank 0 host raised EmulatorError"),
    (["mine.py::clean", "--seeds", 1, "--json", "mine.py/x.json"], "--json is 'mine.py/x.json': "),
]  # fmt: skip


FINDINGS = [
    ("asserts", "result", "rank 1 host raised AssertionError at mine.py:25: only rank 0 is right"),
    ("hangs", "hang", "waits at mine.py:11 for `flag[0]` of rank 0 = 0; nobody has written it"),
    ("outside", "address", "32 bytes past the end of `small`"),
]


@pytest.fixture(scope="module")
def told(mine: Path) -> dict[str, tuple[int, str, str]]:
    return checks([*[words for words, _ in WRONG], *[[f"mine.py::{p}", "--seeds", 1] for p, _, _ in FINDINGS]], mine)


@pytest.mark.parametrize(("words", "line"), WRONG, ids=[line[:60] for _, line in WRONG])
def test_mistakes_end_in_one_line(told: dict, words: list, line: str) -> None:
    status, out, err = told[" ".join(map(str, words))]
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {line}") and err.count("\n") == 1


@pytest.mark.parametrize(("program", "kind", "says"), FINDINGS)
def test_findings_that_are_no_race(told: dict, program: str, kind: str, says: str) -> None:
    status, out, err = told[f"mine.py::{program} --seeds 1"]
    assert (status, err) == (1, "")
    assert out.startswith(f"{kind} at seed 0: ") and says in out


def test_help_and_unknown_commands() -> None:
    assert "FILE::FUNCTION" in check("--help").stdout
    assert emulator("--help").returncode == 0
    done = emulator("chekc")
    assert done.returncode == 2 and "invalid choice: 'chekc'" in done.stderr


TESTS = """
from tests.emulator.foreign import ptx_barrier

pytest_plugins = ["emulator.pytest_plugin"]

def test_right(schedules):
    verdict = schedules(ptx_barrier.program, world_size=2, seeds=20)
    assert verdict.seeds_run == 20

def test_wrong(schedules):
    schedules(ptx_barrier.program, world_size=2, args=("before",), seeds=20, schedulers=("pct",))

def test_file(schedules):
    schedules("mine.py::clean", seeds=5, resident=1, poison=False)

def test_option(schedules):
    schedules("mine.py::clean", world_size=-1)
"""


def test_the_fixture(mine: Path) -> None:
    (mine / "test_mine.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"], cwd=mine, capture_output=True, text=True,
        timeout=300, check=False, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1 and "2 failed, 2 passed" in done.stdout, done.stdout
    assert "ptx_barrier:program on 2 ranks: race at seed 0: no happens-before" in done.stdout
    assert "no block barrier is between the access and the release of the flag" in done.stdout
    assert "operations up to there:" in done.stdout
    assert "EmulatorError: world_size is -1; allowed: 1 or more" in done.stdout
