"""A failing seed is shrunk to a short trace that replays."""

import pytest

CASES = [
    ("push", {"BEFORE": False}, 12),
    ("push", {"SEM": "relaxed"}, 12),
    ("push", {"CONSUMED": False, "calls": 2}, 12),
    ("gather", {"count": "relaxed"}, 12),
    ("waits", {"mode": "equal"}, 16),
]


@pytest.mark.parametrize(("program", "how", "at_most"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_shrinks_to_a_few_decisions_that_replay(interpreting, program: str, how: dict, at_most: int) -> None:
    seed = next(run.seed for run in interpreting("runs", program, seeds=20, **how) if not run.ok)
    small = interpreting("shrunk", program, seed, **how)
    assert small["kept"] <= at_most
    assert small["kept"] <= sum(small["was"])
    assert small["again"] == [small["report"]]
    assert small["same_digest"]
    assert small["trace"]
    assert "context switches" in small["text"] and "delayed deliveries" in small["text"]
