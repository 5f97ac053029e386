"""Trials of mutants: modules replaced and restored, statements reached, verdicts of each part of the adversary."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = '''
"""A push with a flag, and a branch that no program takes."""
import triton
import triton.language as tl


@triton.jit
def push(inboxes, flags, out, rank, VALUE: tl.constexpr, NEVER: tl.constexpr):
    lanes, peer, wg = tl.arange(0, 16), 1 - rank, tl.program_id(0)
    inbox = tl.load(inboxes + peer).to(tl.pointer_type(tl.int32)) + wg * 16
    tl.store(inbox + lanes, VALUE)
    tl.debug_barrier()
    flag = tl.load(flags + peer).to(tl.pointer_type(tl.int32)) + wg
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")
    if NEVER:
        tl.atomic_xchg(flag, 1, sem="relaxed", scope="gpu")
    mine = tl.load(flags + rank).to(tl.pointer_type(tl.int32)) + (1 - wg if NEVER == 0 and tl.num_programs(0) == 2 else wg)
    while tl.atomic_add(mine, 0, sem="acquire", scope="sys") != 1:
        pass
    mailbox = tl.load(inboxes + rank).to(tl.pointer_type(tl.int32)) + (1 - wg if tl.num_programs(0) == 2 else wg) * 16
    tl.store(out + wg * 16 + lanes, tl.load(mailbox + lanes))
'''
PROGRAMS = '''
import torch
from tiny.kernel import push as kernel


def table(symm, tensor):
    return symm.bases + (tensor.data_ptr() - int(symm.bases[symm.rank]))


def run(symm, grid):
    inbox, flag = symm.empty(16 * grid, torch.int32, name="inbox"), symm.empty(grid, torch.int32, name="flag")
    out = torch.zeros(16 * grid, dtype=torch.int32)
    args = {"inboxes": table(symm, inbox), "flags": table(symm, flag), "out": out, "rank": symm.rank, "VALUE": 7, "NEVER": 0}
    symm.launch(kernel, grid, args)
    assert out.tolist() == [7] * 16 * grid, "a value is wrong"


def push(symm):
    run(symm, 1)


def push_two(symm):
    """Each work-group waits for the other one of the peer: both must be resident, which a launch with `one_resident` hides."""
    run(symm, 2)


def too_many(symm):
    run(symm, 3)
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny").mkdir()
    for name, text in {"__init__": "", "kernel": KERNEL, "programs": PROGRAMS, "numbers": "VALUE = 1\n"}.items():
        (folder / "tiny" / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests.emulator.mutant_program", folder], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False, env={"PATH": "/usr/bin:/bin", "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_modules_are_replaced_and_restored(found: dict) -> None:
    assert found["override"] == {
        "inside": 2,
        "twice": "mutated module is 'tiny.numbers', imported already; allowed: a fresh process",
        "left": False,
        "after": 1,
        "loaded": "mutated module is 'tiny.numbers', imported already; allowed: a fresh process",
        "after_error": False,
        "unknown": "module is 'tiny.nothing'; allowed: an importable Python module with a source file",
    }
    assert found["not fresh"] == "mutated module is 'tiny.kernel', imported already; allowed: a fresh process"


def test_statements_that_run_are_reached(found: dict) -> None:
    """The last mutant of a rule counts: the scope of the flag that is never raised is the only one not executed."""
    reached = found["reached"]
    assert reached["device_to_block_scope@push"] is False
    assert all(
        reached[rule]
        for rule in ("release_to_relaxed@push", "drop_barrier@push", "drop_wait@push", "acquire_to_relaxed@push")
    )
    assert found["marked"] == sum(line.startswith("    ") for line in KERNEL.splitlines())


def test_the_unchanged_program_is_clean(found: dict) -> None:
    assert [(o["detector"], o["seed"], o["seeds_tried"]) for o in found["unchanged"]] == [
        ("races", None, 30), ("weak", None, 10), ("sc", None, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "kind", "says"),
    [
        ("release_to_relaxed@push", "race", "was written relaxed"),
        ("drop_barrier@push", "race", "no block barrier is between"),
        ("drop_wait@push", "never written", ""),
    ],
)
def test_mutants_are_caught_by_what_they_break(found: dict, rule: str, kind: str, says: str) -> None:
    races, weak, sc = found[rule]
    assert (races["seed"], races["seeds_tried"], races["invalid"]) == (
        races["seeds_tried"] + 4,
        races["seeds_tried"],
        "",
    )
    assert says in races["text"]
    if rule == "drop_wait@push":
        assert races["kind"] in ("race", kind)
        assert sc["kind"] == "result"  # no weak memory is needed for that
    else:
        assert races["kind"] == kind
        assert weak["kind"] == "result" and "a value is wrong" in weak["text"]
        assert (sc["seed"], sc["seeds_tried"]) == (None, 10)


def test_what_is_no_program_is_told_from_what_is_wrong(found: dict) -> None:
    (only,) = found["invalid"]
    assert only["invalid"].startswith("AttributeError: ") and "nothing" in only["invalid"]
    assert {(o["kind"], o["invalid"]) for o in found["refuses"]} == {("refused", "")}
    assert "grid is 3; allowed: up to 2" in found["refuses"][0]["text"]


def test_launches_are_changed(found: dict) -> None:
    assert {o["kind"] for o in found["launch"]} == {"result"}
    assert {o["kind"] for o in found["residency"]} == {"hang"}
    assert "have not started" in found["residency"][0]["text"]


def test_seeds_and_time_are_bounded(found: dict) -> None:
    assert found["first seed"] == 3
    assert 1 <= found["limit"] < 10_000
