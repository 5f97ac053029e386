"""Each rule makes exactly the mutants that its mistake has in a tiny kernel; others are left alone."""

import ast
import textwrap

import pytest

from emulator.mutants import OPERATORS, mutate

# Rule, kernel's body, and for each expected mutant: line in the body, code before, code after ("" for a statement that is gone).
CASES = [
    ("release_to_relaxed", "tl.atomic_xchg(p, 1, sem='release', scope='sys')\ntl.atomic_add(p, 1, sem='acq_rel')\ntl.atomic_add(p, 0, sem='acquire')", [
        (1, "tl.atomic_xchg(p, 1, sem='release', scope='sys')", "tl.atomic_xchg(p, 1, sem='relaxed', scope='sys')"),
        (2, "tl.atomic_add(p, 1, sem='acq_rel')", "tl.atomic_add(p, 1, sem='relaxed')"),
    ]),
    ("acquire_to_relaxed", "tl.atomic_xchg(p, 1, sem='release')\ntl.atomic_add(p, 0, sem='acquire')", [
        (2, "tl.atomic_add(p, 0, sem='acquire')", "tl.atomic_add(p, 0, sem='relaxed')"),
    ]),
    ("system_to_device_scope", "tl.atomic_add(p, 1, scope='sys')\ntl.atomic_add(p, 1, scope='gpu')", [
        (1, "tl.atomic_add(p, 1, scope='sys')", "tl.atomic_add(p, 1, scope='gpu')"),
    ]),
    ("device_to_block_scope", "tl.atomic_add(p, 1, scope='sys')\ntl.atomic_add(p, 1, scope='gpu')", [
        (2, "tl.atomic_add(p, 1, scope='gpu')", "tl.atomic_add(p, 1, scope='cta')"),
    ]),
    ("drop_barrier", "tl.store(p, 1)\ntl.debug_barrier()\nif q:\n    shmem.drain()\nx = debug_barrier()", [
        (2, "tl.debug_barrier()", ""), (4, "shmem.drain()", ""),
    ]),
    ("drop_wait", "while tl.atomic_add(p, 0) < 1:\n    pass\nwhile n < 3:\n    n += 1\nshmem.wait(p, 1)", [
        (1, "while tl.atomic_add(p, 0) < 1: pass", ""), (5, "shmem.wait(p, 1)", ""),
    ]),
    ("drop_signal", "shmem.signal(p, 1, me, peer)\nold = tl.atomic_xchg(p, 1)\ntl.atomic_xchg(q, 1)", [
        (1, "shmem.signal(p, 1, me, peer)", ""), (3, "tl.atomic_xchg(q, 1)", ""),
    ]),
    ("drop_fence", "shmem.fence()\nshmem.quiet()", [(1, "shmem.fence()", "")]),
    ("drop_quiet", "shmem.fence()\nshmem.quiet()", [(2, "shmem.quiet()", "")]),
    ("flag_before_data", "tl.store(p, 1)\nx = 2\nsignal(f, 1, me, peer)", [(3, "signal(f, 1, me, peer)", "signal(f, 1, me, peer)")]),
    ("wait_for_equality", "while tl.atomic_add(p, 0) < epoch:\n    pass\nwhile a != b:\n    pass", [
        (1, "tl.atomic_add(p, 0) < epoch", "tl.atomic_add(p, 0) != epoch"),
    ]),
    ("constant_epoch", "now = shmem.epoch(p)\nlast = now - 1", [(1, "now = shmem.epoch(p)", "now = tl.cast(1, tl.int64)")]),
    ("drop_double_buffer", "half = now % 2\nthird = now % 3", [(1, "now % 2", "now % 1")]),
    ("wrong_peer", "q = peer_ptr(p, bases, me, there)\nsignal(f, 1, me, there)\nsignal(f, there)", [
        (1, "peer_ptr(p, bases, me, there)", "peer_ptr(p, bases, me, me)"), (2, "signal(f, 1, me, there)", "signal(f, 1, me, me)"),
    ]),
    ("wrong_slot", "shmem.signal(flags + a + b, e)\nwait(flags, e)\nwait(flags + c, e)", [
        (1, "shmem.signal(flags + a + b, e)", "shmem.signal(flags + a, e)"),
        (3, "wait(flags + c, e)", "wait(flags, e)"),
    ]),
    ("one_step_short", "for i in range(n):\n    pass\nfor i in range(a, n):\n    pass", [
        (1, "for i in range(n): pass", "for i in range(n - 1): pass"),
    ]),
    ("last_arrival_off_by_one", "if old == n - 1:\n    pass\nif old == n:\n    pass\nif old < n - 1:\n    pass", [
        (1, "old == n - 1", "old == n - 2"),
    ]),
]  # fmt: skip


def module(body: str) -> str:
    return f"@triton.jit\ndef kernel(p):\n{textwrap.indent(body, '    ')}\n"


def test_every_rule_is_here() -> None:
    assert {rule for rule, _, _ in CASES} == set(OPERATORS)


@pytest.mark.parametrize(("rule", "body", "expected"), CASES, ids=[rule for rule, _, _ in CASES])
def test_rule(rule: str, body: str, expected: list[tuple[int, str, str]]) -> None:
    source = module(body)
    mutants = list(mutate(source, {rule: OPERATORS[rule]}))
    assert sorted((m.line - 2, m.before, m.after) for m in mutants) == sorted(expected)
    original = ast.unparse(ast.parse(source))
    for mutant in mutants:
        assert mutant.name == f"{rule}@kernel:{mutant.line}"
        ast.parse(mutant.source)
        if rule == "flag_before_data":
            lines = [line.strip() for line in mutant.source.splitlines()[2:]]
            assert lines == ["signal(f, 1, me, peer)", "tl.store(p, 1)", "x = 2"]
        elif mutant.after == "":
            removed = [line.strip() for line in mutant.before.replace(": ", ":\n").split("\n")]
            kept = [line.strip() for line in original.splitlines()]
            changed = [line.strip() for line in mutant.source.splitlines()]
            for line in removed[:1]:
                assert changed.count(line) == kept.count(line) - 1
        else:
            first = mutant.after.partition(":")[0]
            assert first in mutant.source and mutant.source != original


def test_only_kernels_are_changed_one_place_at_a_time() -> None:
    source = (
        module("tl.debug_barrier()\ntl.debug_barrier()")
        + "def host(p):\n    tl.debug_barrier()\n"
        + module("tl.debug_barrier()").replace("kernel", "other")
    )
    mutants = list(mutate(source))
    assert [(m.function, m.line) for m in mutants] == [("kernel", 3), ("kernel", 4), ("other", 9)]
    assert all(m.source.count("debug_barrier") == 3 for m in mutants)
    assert [m.function for m in mutate(source, functions=frozenset({"other"}))] == ["other"]


def test_a_kernel_without_synchronisation_has_no_mutant() -> None:
    assert list(mutate(module("tl.store(p, tl.load(p) + 1)"))) == []
