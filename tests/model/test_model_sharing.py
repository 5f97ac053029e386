"""Processor sharing against closed forms and against a brute-force fluid simulation."""

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.model.sharing import SharedRate


def _run(jobs: list[tuple[float, float, float]], capacity: float, cap: float) -> tuple[list[float], SharedRate]:
    """Ends of (start, amount, weight) jobs."""
    env = simpy.Environment()
    shared = SharedRate(env, capacity, cap)
    ends = [float("nan")] * len(jobs)

    def arrive(index: int, start: float, amount: float, weight: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        shared.request(amount, weight, lambda: ends.__setitem__(index, env.now))

    for index, job in enumerate(jobs):
        env.process(arrive(index, *job))
    env.run()
    return ends, shared


def _fluid(jobs: list[tuple[float, float, float]], capacity: float, cap: float) -> list[float]:
    """The same by stepping from event to event over all jobs."""
    left = {i: amount for i, (_, amount, _) in enumerate(jobs)}
    ends, now = [0.0] * len(jobs), 0.0
    while left:
        live = [i for i in left if jobs[i][0] <= now + 1e-12]
        later = [jobs[i][0] for i in left if i not in live]
        if not live:
            now = min(later)
            continue
        rate = min(cap, capacity / sum(jobs[i][2] for i in live))
        step = min([left[i] / rate for i in live] + [t - now for t in later])
        now += step
        for i in live:
            left[i] -= rate * step
            if left[i] <= 1e-9:
                ends[i] = now
                del left[i]
    return ends


def test_one_request_takes_amount_over_rate() -> None:
    assert _run([(0, 100, 1)], 10, float("inf"))[0] == [pytest.approx(10)]
    assert _run([(0, 100, 1)], 10, 4)[0] == [pytest.approx(25)]  # its own cap binds


def test_equal_requests_share_equally_and_a_class_is_its_members() -> None:
    apart, _ = _run([(0, 100, 1)] * 5, 10, 4)
    together, shared = _run([(0, 100, 5)], 10, 4)
    assert apart == [pytest.approx(50)] * 5
    assert together == [pytest.approx(50)]
    assert shared.served == pytest.approx(500)


def test_a_late_request_slows_the_early_one() -> None:
    early, late = _run([(0, 100, 1), (5, 25, 1)], 10, float("inf"))[0]
    assert late == pytest.approx(10)  # 5 + 25 / 5
    assert early == pytest.approx(12.5)  # 50 alone, 25 at half rate, 25 alone


def test_nothing_to_serve_is_done_at_once() -> None:
    assert _run([(3, 0, 1)], 10, 1)[0] == [3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 200), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(1, 50),
)
def test_agrees_with_a_fluid_simulation(jobs: list[tuple[int, int, int]], capacity: int, cap: int) -> None:
    ends, shared = _run(jobs, capacity, cap)
    assert ends == pytest.approx(_fluid(jobs, capacity, cap), rel=1e-6, abs=1e-6)
    assert shared.served == pytest.approx(sum(a * w for _, a, w in jobs))
    # Conservation: no faster than the capacity from the first arrival on.
    assert max(ends) >= min(j[0] for j in jobs) + (shared.served / capacity) * (1 - 1e-9)
