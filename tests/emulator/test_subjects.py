"""Subjects of a campaign come from a file: what it says, and one line for what is wrong in it."""

from pathlib import Path

import pytest

from emulator import EmulatorError
from emulator.mutants.subjects import Equivalent, LaunchMutant, read

ENTRY = "name: a\n    program: 'm:f'\n    args: [1, {k: v}]\n    world_size: 2\n    resident: 3\n    modules: [m, n]"
GOOD = f"""
equivalent: [{{mutant: "m.*@f:*", reason: everywhere}}]
launch: [{{name: plan, args: {{order: 0}}, expect: clean, reason: any order}}]
subjects:
  - {ENTRY}
    equivalent: [{{mutant: "m.drop_barrier@f:3", reason: Triton has one there, change: "a(* -> *", evidence: bar.sync}}]
    only: ["m.*"]
    sample: true
"""


def test_a_file_of_subjects(tmp_path: Path) -> None:
    file = tmp_path / "subjects.yaml"
    file.write_text(GOOD)
    (subject,) = read(file)
    assert (subject.name, subject.args, subject.modules, subject.sample) == ("a", (1, {"k": "v"}), ("m", "n"), True)
    assert subject.launch == (LaunchMutant("plan", {"order": 0}, expect="clean", reason="any order"),)
    assert subject.equivalence("m.drop_barrier@f:3", "a(x) -> (nothing)") == Equivalent(
        "m.drop_barrier@f:3", "Triton has one there", "a(* -> *", "bar.sync"
    )
    assert subject.equivalence("m.drop_barrier@f:3", "b(x) -> (nothing)").reason == "everywhere"
    assert subject.equivalence("m.drop_wait@f:9", "").reason == "everywhere"
    assert subject.equivalence("n.drop_wait@f:9", "") is None
    assert subject.wants("m.x@f:1") and not subject.wants("n.x@f:1")


def test_the_files_of_this_repository_are_right() -> None:
    subjects = read(Path(__file__).parents[2] / "experiments" / "cases" / "subjects.yaml")
    assert len({s.name for s in subjects}) == len(subjects) >= 6
    assert any(s.sample for s in subjects)


WRONG = [
    ("subjects: [", "{} is not YAML: "),
    ("- a", "{} has no list `subjects`"),
    ("subjects: {a: 1}", "{} has no list `subjects`"),
    ("subjects: [3]", "{}, subject 1 is 3; allowed: a mapping"),
    (f"subjects:\n  - {ENTRY}\n    sede: 3", "{}, subject 1 has the field 'sede'; allowed: args, equivalent, heap_bytes"),
    ("subjects: [{name: a}]", "{}, subject 1: missing 5 required positional arguments: 'program', 'args', 'world_size'"),
    (f"subjects:\n  - {ENTRY}\n    equivalent: [x]", "{}, subject 1, equivalent is 'x'; allowed: a mapping"),
    (f"subjects:\n  - {ENTRY}\n    launch: [{{nam: x}}]", "{}, subject 1, launch has the field 'nam'; allowed: args, expect, name"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), WRONG, ids=[line for _, line in WRONG])
def test_mistakes_are_one_line(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "subjects.yaml"
    file.write_text(text)
    with pytest.raises(EmulatorError) as caught:
        read(file)
    assert str(caught.value).startswith(line.format(file)) and "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        EmulatorError, match="subjects file is '.*none.yaml': No such file or directory; allowed: a YAML file"
    ):
        read(tmp_path / "none.yaml")
