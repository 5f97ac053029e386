"""The guide "verify your own kernel", as a reader follows it: every code block and command, what they print, and every option."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulator.commands import ROOT, checks, emulator

GUIDE = (ROOT / "emulator" / "VERIFY_YOUR_OWN_KERNEL.md").read_text()
BARRIER = "tl.debug_barrier()"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def table(heading: str) -> list[str]:
    """First column of the table with that heading."""
    rows = GUIDE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [row.split(" | ")[0].strip("| ") for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mine.py as the guide has it, right.py with the barrier that it asks for, and the test of either."""
    folder = tmp_path_factory.mktemp("guide")
    program, test = blocks("python")
    lines = program.splitlines(keepends=True)
    where = int(re.search(r"`tl.debug_barrier\(\)` before line (\d+)", " ".join(GUIDE.split()))[1])
    lines.insert(where - 1, f"    {BARRIER}\n")
    (folder / "mine.py").write_text(program)
    (folder / "right.py").write_text("".join(lines))
    (folder / "test_mine.py").write_text(test)
    (folder / "test_right.py").write_text(test.replace("from mine", "from right"))
    return folder


def test_commands_print_what_the_guide_says(folder: Path) -> None:
    (command,) = blocks("sh")
    finding, clean = (text.strip() for text in blocks("text"))
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "emulator"]
    wrong = emulator(*words[3:], cwd=folder)
    right = emulator(*[word.replace("mine.py", "right.py") for word in words[3:]], cwd=folder)
    assert (wrong.returncode, wrong.stdout.splitlines()[0]) == (1, finding)
    assert (right.returncode, right.stdout.replace("right.py", "mine.py")[: len(clean)]) == (0, clean)


def test_every_option_works(folder: Path) -> None:
    """Those of one row together where they are meant so; two ranks, since the program has no more."""
    cells = [cell for row in table("option") for cell in re.findall(r"`([^`]+)`", row)]
    assert len(cells) >= 12
    words = [shlex.split(cell.replace("10000", "3").replace("--world 4", "--world 2")) for cell in cells]
    program = "right.py::program"
    answers = checks(
        [[program, "--jobs", 1, *w, *([] if "--seed" in w or "--seeds" in w else ["--seeds", 3])] for w in words],
        folder,
    )
    for command, (status, out, err) in answers.items():
        if "--args" in command:
            assert "takes 1 positional argument but 3 were given" in err
        else:
            assert status == 0 and out.startswith("clean:"), (command, err)
    assert (folder / "verdict.json").is_file()


def test_the_test_fails_and_passes(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", "test_right.py"], cwd=folder,
        capture_output=True, text=True, timeout=300, check=False, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "no block barrier is between the access and the release of the flag" in done.stdout


def test_findings_are_worded_as_the_guide_says() -> None:
    source = "".join(
        (ROOT / "emulator" / file).read_text() for file in ("memory_model/explain.py", "replay/liveness.py")
    )
    source = re.sub(r"\{[^{}]*\}", "...", source).replace("released at ... scope", "released at gpu scope")
    source = source.replace("and ... is ...", "and ... is on another gpu")
    findings = [re.match(r"`([^`]+)`", row)[1] for row in table("a finding says")]
    assert len(findings) == 9
    assert [f for f in findings if f not in source] == []


def test_other_documents_lead_here() -> None:
    assert "(VERIFY_YOUR_OWN_KERNEL.md)" in (ROOT / "emulator" / "README.md").read_text()
