"""The memory model against the PTX model: every execution of every litmus test is enumerated."""

import pytest

from emulator.memory_model.litmus import Litmus, matches, outcomes
from emulator.memory_model.litmus_table import TABLE


@pytest.mark.parametrize("test", TABLE, ids=lambda t: t.name)
def test_outcomes_are_those_of_the_ptx_model(test: Litmus) -> None:
    found = outcomes(test)
    for condition in test.allowed:
        assert any(matches(o, condition) for o in found), f"allowed, never seen: {condition}; seen: {sorted(found)}"
    for condition in (*test.forbidden, *test.not_produced):
        assert not any(matches(o, condition) for o in found), f"must not occur: {condition}"


def _named(name: str) -> Litmus:
    return next(t for t in TABLE if t.name == name)


@pytest.mark.parametrize(
    ("name", "weak_outcome", "modes"),
    [
        # which of the control modes can produce the weak outcome
        ("SB plain", "a=0 b=0", {"late", "stale", "weak"}),
        ("MP rlx acq", "a=1 b=0", {"late", "weak"}),
        ("MP rel rlx", "a=1 b=0", {"stale", "weak"}),
        ("MP rlx rlx", "a=1 b=0", {"late", "stale", "weak"}),
        ("MP rel.gpu acq.sys, other gpu", "a=1 b=0", {"late", "weak"}),
        ("MP rel.sys acq.sys, other gpu", "a=1 b=0", set()),
        ("MP data by another thread, no barrier", "a=1 b=0", {"sc", "late", "stale", "weak"}),
        ("IRIW acq", "a=1 b=0 c=1 d=0", {"weak"}),
        ("2+2W rlx", "[x]=1 [y]=1", {"weak"}),
    ],
)
def test_control_modes_are_weaker_adversaries(name: str, weak_outcome: str, modes: set[str]) -> None:
    seen = {
        m for m in ("sc", "late", "stale", "weak") if any(matches(o, weak_outcome) for o in outcomes(_named(name), m))
    }
    assert seen == modes


GUARDED = (
    # (test whose last read is done only if the flag was seen, whether it races)
    ("MP, sys", "0.0: W x 1; W.rel.sys y 1\n1.0: R.acq.sys y a; a=1? R x b", False),
    ("MP, released at gpu scope", "0.0: W x 1; W.rel.gpu y 1\n1.0: R.acq.sys y a; a=1? R x b", True),
    ("MP, gpu scope on one gpu", "0.0: W x 1; W.rel.gpu y 1\n0.1: R.acq.gpu y a; a=1? R x b", False),
    ("MP, relaxed flag", "0.0: W x 1; W.rlx.sys y 1\n1.0: R.acq.sys y a; a=1? R x b", True),
    ("MP, relaxed poll", "0.0: W x 1; W.rel.sys y 1\n1.0: R.rlx.sys y a; a=1? R x b", True),
    ("MP, plain poll", "0.0: W x 1; W.rel.sys y 1\n1.0: R y a; a=1? R x b", True),
    ("MP, fences", "0.0: W x 1; F.acq_rel.sys; W.rlx.sys y 1\n1.0: R.rlx.sys y a; F.acq_rel.sys; a=1? R x b", False),
    ("MP, two threads and a barrier", "0.0: W x 1; B\n0.0: B; W.rel.sys y 1\n1.0: R.acq.sys y a; B\n1.0: B; a=1? R x b", False),
    ("MP, two threads, no barrier", "0.0: W x 1\n0.0: W.rel.sys y 1\n1.0: R.acq.sys y a; a=1? R x b", True),
    ("last arrival", "0.0: W x 1; A.acq_rel.gpu c 1 p\n0.1: A.acq_rel.gpu c 1 q; q=1? X.rel.sys f 1 r\n1.0: R.acq.sys f a; a=1? R x b", False),
    ("last arrival, relaxed", "0.0: W x 1; A.rlx.gpu c 1 p\n0.1: A.rlx.gpu c 1 q; q=1? X.rel.sys f 1 r\n1.0: R.acq.sys f a; a=1? R x b", True),
    ("counter", "0.0: W x 1; A.rel.sys c 1 p\n1.0: A.rlx.sys c 1 q\n2.0: R.acq.sys c a; a=2? R x b", False),
    ("counter, broken chain", "0.0: W x 1; A.rel.sys c 1 p\n1.0: A.rlx.gpu c 1 q\n2.0: R.acq.sys c a; a=2? R x b", True),
    ("consumed", "0.0: W x 1; W.rel.sys y 1; R.acq.sys z c; c=1? W x 2\n1.0: R.acq.sys y a; a=1? R x b; a=1? W.rel.sys z 1", False),
    ("not consumed", "0.0: W x 1; W.rel.sys y 1; W x 2\n1.0: R.acq.sys y a; a=1? R x b", True),
    ("consumed, relaxed", "0.0: W x 1; W.rel.sys y 1; R.acq.sys z c; c=1? W x 2\n1.0: R.acq.sys y a; a=1? R x b; a=1? W.rlx.sys z 1", True),
    ("two atomics", "0.0: A.rlx.sys x 1 a\n1.0: A.rlx.sys x 1 b", False),
    ("two atomics, gpu scope between gpus", "0.0: A.rlx.gpu x 1 a\n1.0: A.rlx.gpu x 1 b", True),
    ("strong write, plain read", "0.0: W.rlx.sys x 1\n1.0: R x a", True),
    ("plain write after an unordered atomic", "0.0: A.rlx.sys x 1 a\n1.0: R.rlx.sys x b; W x 5", True),
    ("two plain writes", "0.0: W x 1\n1.0: W x 1", True),
    ("two plain reads", "0.0: R x a\n1.0: R x b", False),
)  # fmt: skip


@pytest.mark.parametrize(("name", "threads", "racy"), GUARDED, ids=[g[0] for g in GUARDED])
def test_races_are_reported_where_happens_before_is_missing(name: str, threads: str, racy: bool) -> None:
    races: list = []
    outcomes(Litmus(name, threads), races=races)
    assert bool(races) == racy, [(r.kind, r.earlier, r.later) for r in races[:1]]
