"""`python -m emulator soak`: rows of a CSV file that go on where they stopped; reports are counted and the first is shown."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.commands import several

PROGRAMS = """
import torch, triton
import triton.language as tl

@triton.jit
def take_ticket(counter, out):
    tl.store(out + tl.program_id(0), tl.atomic_add(counter, 1, sem="relaxed", scope="gpu"))

def tickets(symm, wrong):
    out, counter = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    symm.launch(take_ticket, 4, {"counter": counter, "out": out})
    assert out.tolist() != wrong

def raises(symm):
    raise KeyError("no such thing")
"""
SUBJECTS = """
subjects:
  - {name: any order, program: "mine.py::tickets", args: [[]], world_size: 1, resident: 4, modules: []}
  - {name: one is wrong, program: "mine.py::tickets", args: [[3, 1, 2, 0]], world_size: 1, resident: 4, modules: []}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PROGRAMS)
    (tmp_path / "subjects.yaml").write_text(SUBJECTS)
    return tmp_path


def soak(folder: Path, *commands: list) -> list[tuple[int, str, str]]:
    """(exit status, stdout, stderr) of each, one after the other in one process."""
    before = ["soak", "--subjects", "subjects.yaml", "--jobs", 1]
    return list(several([[*before, *words] for words in commands], folder).values())


def rows(file: Path) -> dict[str, dict[str, str]]:
    with file.open(newline="") as text:
        return {row["program"]: row for row in csv.DictReader(text)}


def test_reports_are_counted_and_the_first_is_shown(folder: Path) -> None:
    [(status, out, _)] = soak(folder, ["--seeds", 200, "--block", 80, "--out", "rows.csv"])
    assert status == 1
    found = rows(folder / "rows.csv")
    clean, wrong = found["any order"], found["one is wrong"]
    assert (clean["seeds"], clean["reports"], clean["first_report"]) == ("200", "0", "")
    # The same schedules, whatever the program asserts; `check` finds the same lowest seed (test_check.py).
    assert (wrong["seeds"], wrong["first_report"], wrong["longest"]) == ("200", "117", clean["longest"])
    assert 1 <= int(wrong["reports"]) < 200
    assert "one is wrong: result at seed 117: " in out
    assert "replay: python -m emulator check mine.py::tickets --seed 117" in out
    digests = np.fromfile(folder / "rows.digests/any order", "<u8")
    assert digests.size == 200 and int(clean["distinct"]) == np.unique(digests).size < 200


def test_it_goes_on_where_it_stopped(folder: Path) -> None:
    words = ["--subject", "any order", "--block", 30, "--seeds"]
    stopped = [*words, 60, "--out", "parts.csv", "--time-limit", 0.001]
    answers = soak(
        folder, [*words, 60, "--out", "whole.csv"], stopped, [*words, 90, "--time-limit", 1e-3, "--out", "parts.csv"]
    )
    assert [status for status, _, _ in answers] == [0, 75, 75]
    assert ["30 of 60 schedules" in answers[1][1], "60 of 90 schedules" in answers[2][1]] == [True, True]
    whole, parts = rows(folder / "whole.csv")["any order"], rows(folder / "parts.csv")["any order"]
    assert whole["seeds"] == "60"
    assert all(parts[n] == whole[n] for n in whole if n not in ("processor_s", "peak_mb"))

    # Another text of the program: its seeds do not count with the old ones. Neither does a row whose digests are gone.
    (folder / "mine.py").write_text(PROGRAMS + "\n# changed\n")
    (folder / "whole.digests/any order").write_bytes(b"")
    (changed, _, says), (lost, _, asks) = soak(
        folder, [*words, 90, "--out", "parts.csv"], [*words, 90, "--out", "whole.csv"]
    )
    assert (changed, lost) == (2, 2)
    assert "parts.csv, any order: sources is '" in says and says.count("\n") == 1
    assert asks.endswith("has 0 digests; allowed: the 60 that whole.csv tells of, or another --out\n")


def test_mistakes_end_in_one_line(folder: Path) -> None:
    (folder / "bad.csv").write_text("a,b\n1,2\n")
    (folder / "raises.yaml").write_text(SUBJECTS.replace("tickets", "raises").replace("[[]]", "[]"))
    answers = soak(
        folder,
        ["--seeds", 0, "--out", "x.csv"],
        ["--subject", "none", "--out", "x.csv"],
        ["--out", "bad.csv"],
        ["--subjects", "raises.yaml", "--subject", "any order", "--seeds", 1, "--out", "x.csv"],
    )
    assert [(status, out) for status, out, _ in answers] == [(2, "")] * 4
    said = [err for _, _, err in answers]
    assert said[0] == "error: --seeds is 0; allowed: 1 or more\n"
    assert said[1] == "error: --subject is 'none'; allowed: any order, one is wrong\n"
    assert said[2].startswith("error: bad.csv has the columns a, b; allowed: program, world_size, ")
    assert "error: program is 'mine.py::raises': rank 0 host raised KeyError at mine.py" in said[3]
