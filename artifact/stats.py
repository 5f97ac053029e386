"""Statistics of measured times: medians with rank intervals, ratios with paired bootstrap intervals, labelled means of ratios.

No normality is assumed (Hoefler and Belli, SC'15, rules 5 and 6); means of ratios are geometric and say so (rule 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

CONFIDENCE = 0.95
RESAMPLES = 2000
MIN_SAMPLES = 6  # fewer have no non-parametric 95 % interval


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; `low` and `high` are NaN when there are too few samples."""

    value: float
    low: float
    high: float
    samples: int

    @property
    def half_width(self) -> float:
        """Half of the interval relative to the estimate."""
        return (self.high - self.low) / 2 / self.value


@dataclass(frozen=True)
class Summary:
    """One number for several, with the name of the mean that made it."""

    kind: str
    value: float
    count: int


def median_ranks(samples: int, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """1-based ranks of the order statistics that enclose the median with `confidence`; None when no pair does.

    Exact, by the binomial distribution: the widest tail on each side that has at most (1 - confidence) / 2.
    """
    tail = (1 - confidence) / 2
    low = int(scipy_stats.binom.ppf(tail, samples, 0.5))
    while low > 0 and scipy_stats.binom.cdf(low - 1, samples, 0.5) > tail:
        low -= 1
    return (low, samples + 1 - low) if low >= 1 else None


def median(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median with its rank interval. Raises `ValueError` for no values."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size == 0:
        raise ValueError("median of no values")
    ranks = median_ranks(ordered.size, confidence)
    low, high = (np.nan, np.nan) if ranks is None else (ordered[ranks[0] - 1], ordered[ranks[1] - 1])
    return Interval(float(np.median(ordered)), float(low), float(high), int(ordered.size))


def ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Ratio of medians with a percentile interval of a paired bootstrap: sample i of both arms was taken in the same round.

    Raises `ValueError` unless both have the same number of values, at least one.
    """
    a, b = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"paired ratio needs as many values above as below, got {a.size} and {b.size}")
    estimate = float(np.median(a) / np.median(b))
    if a.size < MIN_SAMPLES:
        return Interval(estimate, np.nan, np.nan, int(a.size))
    drawn = np.random.default_rng(seed).integers(0, a.size, (resamples, a.size))
    found = np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high), int(a.size))


def geometric_mean(values: Sequence[float]) -> Summary:
    """Geometric mean of positive ratios. Raises `ValueError` for none, or for one that is not positive."""
    array = np.asarray(values, dtype=float)
    if array.size == 0 or (array <= 0).any():
        raise ValueError("geometric mean needs positive values, at least one")
    return Summary("geometric mean", float(np.exp(np.log(array).mean())), int(array.size))


def total_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Summary:
    """Ratio of summed times: what a user who runs every case once sees."""
    a, b = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if a.shape != b.shape or a.size == 0 or b.sum() <= 0:
        raise ValueError("ratio of totals needs as many values above as below, with a positive sum")
    return Summary("ratio of total times", float(a.sum() / b.sum()), int(a.size))


def reduction_percent(time_ratio: float) -> float:
    """Percent lower execution time that a ratio new / old means: 0.8 is 20 % lower; negative when slower."""
    return 100.0 * (1.0 - time_ratio)
