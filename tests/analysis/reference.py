"""Slow statistics, one draw, flip or outcome at a time, to compare the fast ones with.

Written from the definitions (docs/methods.md, Statistics), in plain loops and
with none of the fast code: what agrees with these by accident would have to be wrong twice.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
from scipy import stats

NORMAL = NormalDist()
Z = NORMAL.inv_cdf(0.975)
Paired = Callable[[Sequence[int]], float]
"""A statistic of the instances at these places, which may repeat."""


def resampled(of: Paired, counts: np.ndarray) -> list[float]:
    """Return the statistic of every resample, each drawn out instance by instance."""
    return [of([i for i, n in enumerate(row) for _ in range(int(n))]) for row in counts]


def ratio_of_totals(control: np.ndarray, treatment: np.ndarray) -> Paired:
    return lambda places: sum(treatment[i] for i in places) / sum(control[i] for i in places)


def ratio_of_medians(control: np.ndarray, treatment: np.ndarray) -> Paired:
    return lambda places: float(
        np.median([treatment[i] for i in places]) / np.median([control[i] for i in places])
    )


def expanded_interval(
    values: Sequence[float], n_instances: int, *, level: float = 0.95
) -> tuple[float, float]:
    """Hesterberg (2015): percentiles at Phi(-sqrt(n / (n - 1)) t) instead of (1 - level) / 2."""
    t = stats.t.ppf((1 + level) / 2, n_instances - 1)
    tail = NORMAL.cdf(-sqrt(n_instances / (n_instances - 1)) * t)
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def expanded_p(values: Sequence[float], n_instances: int, *, null: float) -> float:
    """The level 1 - p whose expanded tail is the observed one, found by halving."""
    below = sum(v <= null + 1e-9 for v in values)
    above = sum(v >= null - 1e-9 for v in values)
    observed = (1 + min(below, above)) / (len(values) + 1)
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        t = stats.t.ppf(1 - p / 2, n_instances - 1)
        tail = NORMAL.cdf(-sqrt(n_instances / (n_instances - 1)) * t)
        low, high = (low, p) if tail >= observed else (p, high)
    return high


def sign_flip_p(control: np.ndarray, treatment: np.ndarray) -> float:
    """Whole arms change places within an instance, in all 2^k ways."""
    gaps = [float(np.nanmean(t) - np.nanmean(c)) for c, t in zip(control, treatment, strict=True)]
    gaps = [gap for gap in gaps if abs(gap) > 1e-9]
    observed = abs(sum(gaps)) - 1e-9
    flips = list(product((-1, 1), repeat=len(gaps)))
    extreme = sum(abs(sum(s * g for s, g in zip(f, gaps, strict=True))) >= observed for f in flips)
    return extreme / len(flips)


def mcnemar_p(won: int, lost: int) -> float:
    return float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0


def tango_ends(won: int, lost: int, n: int, *, points: int = 20_001) -> tuple[float, float]:
    """Every difference that the score test does not reject, looked for on a grid."""
    inside = [
        delta
        for delta in np.linspace(-1, 1, points)[1:-1]
        if abs(tango_statistic(won, lost, n, float(delta))) <= Z
    ]
    return min(inside), max(inside)


def tango_statistic(won: int, lost: int, n: int, delta: float) -> float:
    """The share of lost pairs is the larger root of Tango's quadratic (1998, section 2)."""
    a, b = 2 * n, -won - lost + (2 * n - won + lost) * delta
    c = -lost * delta * (1 - delta)
    share = (sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * share + delta * (1 - delta))
    return (won - lost - n * delta) / sqrt(variance) if variance > 0 else 0.0


def outcomes(n: int, discordance: float, difference: float) -> list[tuple[float, int, int]]:
    """Chance, pairs won and pairs lost of every outcome of n pairs."""
    won, lost = (discordance + difference) / 2, (discordance - difference) / 2
    rest = 1 - discordance
    return [
        (comb(n, w) * comb(n - w, k) * won**w * lost**k * rest ** (n - w - k), w, k)
        for w in range(n + 1)
        for k in range(n + 1 - w)
    ]
