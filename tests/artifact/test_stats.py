"""Intervals and means, against values worked out by hand or by another method."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from artifact import stats


def test_ranks_of_the_median_interval():
    assert stats.median_ranks(5) is None  # five values reach 93.75 % at most
    assert stats.median_ranks(6) == (1, 6)
    assert stats.median_ranks(30) == (10, 21)
    assert stats.median_ranks(100) == (40, 61)


@pytest.mark.parametrize("samples", [6, 17, 30, 60, 101])
def test_the_rank_interval_covers_and_no_narrower_one_does(samples):
    low, high = stats.median_ranks(samples)
    coverage = scipy_stats.binom.cdf(high - 1, samples, 0.5) - scipy_stats.binom.cdf(low - 1, samples, 0.5)
    narrower = scipy_stats.binom.cdf(high - 2, samples, 0.5) - scipy_stats.binom.cdf(low, samples, 0.5)
    assert coverage >= 0.95 > narrower


def test_the_interval_holds_the_true_median_often_enough():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        found = stats.median(rng.lognormal(0.0, 0.5, 30))
        hits += found.low <= 1.0 <= found.high
    assert hits >= 0.93 * 400


def test_median_of_few_values_has_no_interval():
    found = stats.median([3.0, 1.0, 2.0])
    assert found.value == 2.0 and np.isnan(found.low) and found.samples == 3
    with pytest.raises(ValueError, match="no values"):
        stats.median([])


def test_pairing_removes_what_both_arms_share():
    rng = np.random.default_rng(2)
    drift = rng.uniform(50, 150, 60)  # the machine changes between rounds, both arms feel it alike
    found = stats.ratio(0.9 * drift, drift)
    assert found.value == pytest.approx(0.9) and found.low == pytest.approx(0.9) and found.high == pytest.approx(0.9)


def test_ratio_of_equal_arms_is_not_below_one():
    rng = np.random.default_rng(3)
    a, b = rng.normal(100, 2, 60), rng.normal(100, 2, 60)
    found = stats.ratio(a, b)
    assert found.low < 1 < found.high
    assert found == stats.ratio(a, b)


def test_ratio_needs_pairs():
    with pytest.raises(ValueError, match="2 and 3"):
        stats.ratio([1.0, 2.0], [1.0, 2.0, 3.0])


def test_means_say_which_they_are():
    assert stats.geometric_mean([0.5, 2.0]) == stats.Summary("geometric mean", pytest.approx(1.0), 2)
    assert stats.total_ratio([1.0, 3.0], [2.0, 6.0]) == stats.Summary("ratio of total times", 0.5, 2)
    with pytest.raises(ValueError, match="positive"):
        stats.geometric_mean([1.0, 0.0])
    assert stats.reduction_percent(0.8) == pytest.approx(20.0)
