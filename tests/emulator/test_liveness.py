"""Hangs are reported at once, with who waits for what; grids that hang only on a small GPU are found by residency."""

import re

import pytest

HANGS = [
    (
        "waits",
        {"mode": "nobody raises it"},
        {},
        r"rank 0 WG 0 waits at .*py:\d+ for `flags\[5\]` of rank 0 = 0; nobody has written it",
    ),
    (
        "waits",
        {"mode": "in a circle"},
        {},
        r"rank 1 WG 3 waits at .* for `flags\[3\]` of rank 1 = 0; nobody has written it",
    ),
    ("waits", {"mode": "equal"}, {}, r"of rank \d = [234]; last written by rank \d WG \d replay_kernels.py"),
    (
        "waits",
        {"mode": "for a later work-group"},
        {"resident": 2},
        r"WG 2 to 3 have not started: only 2 work-groups are resident",
    ),
    ("uneven", {}, {}, r"rank 0 host waits in barrier; rank 1 has ended"),
]


@pytest.mark.parametrize(("program", "how", "options", "says"), HANGS, ids=[str(h[1]) for h in HANGS])
def test_hangs_are_reported(interpreting, program: str, how: dict, options: dict, says: str) -> None:
    for run in interpreting("runs", program, seeds=8, options=options, **how):
        assert run.reports and run.reports[0].kind == "hang"
        assert re.search(says, run.reports[0].text), str(run.reports[0])
        assert run.steps < 2000  # at once, not after a time-out


def test_a_hang_that_only_small_residency_shows(interpreting) -> None:
    how = {"mode": "for a later work-group", "wgs": 4}
    assert all(run.ok for run in interpreting("runs", "waits", seeds=10, options={"resident": 4}, **how))
    small = interpreting("runs", "waits", seeds=10, options={"resident": 3}, **how)
    assert all(run.reports[0].details["not_started"] for run in small)


def test_a_grid_that_waits_is_refused_beyond_residency(interpreting) -> None:
    (run,) = interpreting("runs", "push", seeds=1, options={"resident": 2}, wgs=4)
    assert "grid is 4; allowed: up to 2 resident" in run.reports[0].text


def test_livelock(interpreting) -> None:
    (run,) = interpreting("runs", "waits", seeds=1, options={"max_steps": 1000}, mode="lock")
    assert run.reports[0].kind == "livelock"
    assert re.search(r"rank 0 WG 0 is at replay_kernels.py:\d+ \(atomic_xchg\)", run.reports[0].text)
