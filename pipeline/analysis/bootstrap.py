"""Resampling of instances, for intervals on paired effects.

Instances are the only thing resampled: seeds are replicates of one instance, so each drawn
instance brings all its seeds along, already averaged. A resample is a row of counts (how often
each instance was drawn), and a statistic of all resamples and all arms is one matrix product.

Not here: which runs belong to an instance (`runs_frame`), tests (`paired_tests`), claims of
sameness (`equivalence`).

The percentile interval is the *expanded* one: the plain one treats the resamples' spread as known
and is too narrow by the factor sqrt((n - 1) / n) and by normal instead of t quantiles, which leaves
90% coverage of a ratio of sums at 12 instances. Its p value is the level at which it just reaches
the value of no effect.

Sources: Hesterberg (2015), The American Statistician 69, section 4.1, for the expansion; Efron and
Tibshirani, An Introduction to the Bootstrap (1993), chapter 14, for BCa; Davison and Hinkley,
Bootstrap Methods and their Application (1997), section 4.2, for the one added to both counts of a
tail.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from pipeline.analysis.arrays import FloatArray

DRAWS = 10_000
"""Resamples of a published interval."""

_TIE = 1e-9
"""Values closer than this are equal: seed means such as 1/3 do not cancel exactly in floats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """An effect with its intervals. What cannot be computed is NaN."""

    value: float
    low: float
    """Expanded percentile interval, lower end."""
    high: float
    bca_low: float
    """Bias-corrected and accelerated interval, lower end."""
    bca_high: float
    p_value: float
    """Two-sided, against the value of no effect, by the law of the expanded interval."""
    n_instances: int
    null: float
    """The value of no effect: 0 for differences, 1 for ratios."""

    @property
    def excludes_null(self) -> bool:
        """True where the percentile interval does not contain the value of no effect."""
        return self.low > self.null or self.high < self.null


def resample_counts(n_instances: int, *, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return how often each instance was drawn in each resample, shape (draws, instances).

    Every row sums to `n_instances`.

    Raises:
        ValueError: no instances.
    """
    if n_instances < 1:
        raise ValueError("cannot resample without instances")
    # One bincount over row-offset indices is 20 times quicker than a multinomial per row.
    drawn = rng.integers(0, n_instances, size=(draws, n_instances))
    drawn += (np.arange(draws) * n_instances)[:, None]
    tally = np.bincount(drawn.ravel(), minlength=draws * n_instances)
    counts: FloatArray = tally.reshape(draws, n_instances).astype(np.float64)
    return counts


def seed_means(values: FloatArray) -> FloatArray:
    """Return each instance's mean over its seeds; NaN marks a seed that an instance lacks.

    Args:
        values: shape (instances, seeds).
    """
    present = ~np.isnan(values)
    n_seeds = present.sum(axis=1)
    sums = np.where(present, values, 0.0).sum(axis=1)
    means: FloatArray = np.full(len(values), np.nan)
    np.divide(sums, n_seeds, out=means, where=n_seeds > 0)
    return means


def _leave_one_out(values: FloatArray) -> FloatArray:
    """Return the sums of each column without one row each."""
    left_out: FloatArray = values.sum(axis=0, keepdims=True) - values
    return left_out


def mean_differences(
    control: FloatArray, treatments: FloatArray, counts: FloatArray
) -> list[Estimate]:
    """Return treatment minus control in the mean, one estimate an arm.

    Args:
        control: seed means, shape (instances,) or (instances, arms).
        treatments: seed means, shape (instances, arms).
        counts: from `resample_counts`.
    """
    differences = treatments - _column(control)
    n = len(differences)
    if n == 0:
        return [unknown(0, null=0.0) for _ in range(treatments.shape[1])]
    resampled = counts @ differences / n
    jackknife = _leave_one_out(differences) / max(n - 1, 1)
    return _estimates(differences.mean(axis=0), resampled, jackknife, null=0.0)


def ratios_of_sums(
    control: FloatArray, treatments: FloatArray, counts: FloatArray
) -> list[Estimate]:
    """Return the treatment's total over the control's, one estimate an arm.

    Args:
        control: seed means, shape (instances,) or (instances, arms).
        treatments: seed means, shape (instances, arms).
        counts: from `resample_counts`.
    """
    below = _column(control)
    n = len(below)
    if n == 0:
        return [unknown(0, null=1.0) for _ in range(treatments.shape[1])]
    return _estimates(
        ratio_or_nan(treatments.sum(axis=0), below.sum(axis=0)),
        ratio_or_nan(counts @ treatments, counts @ below),
        ratio_or_nan(_leave_one_out(treatments), _leave_one_out(below)),
        null=1.0,
    )


def geometric_mean_ratios(
    control: FloatArray, treatments: FloatArray, counts: FloatArray
) -> list[Estimate]:
    """Return the geometric mean of per-instance ratios, one estimate an arm.

    An instance with a value that is not positive has no ratio: the estimate is then NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(treatments) - np.log(_column(control))
    logs = np.where(np.isfinite(logs), logs, np.nan)
    n = len(logs)
    if n == 0:
        return [unknown(0, null=1.0) for _ in range(treatments.shape[1])]
    return _estimates(
        np.exp(logs.mean(axis=0)),
        np.exp(counts @ logs / n),
        np.exp(_leave_one_out(logs) / max(n - 1, 1)),
        null=1.0,
    )


def statistic(
    of_weights: Callable[[FloatArray], FloatArray],
    *,
    counts: FloatArray,
    null: float,
) -> Estimate:
    """Return an estimate of any statistic that can be computed from instance weights.

    Args:
        of_weights: takes weights of shape (k, instances), returns k values.
        counts: from `resample_counts`.
        null: the value of no effect.
    """
    n = counts.shape[1]
    value = of_weights(np.ones((1, n)))
    jackknife = of_weights(np.ones((n, n)) - np.eye(n))[:, None]
    return _estimates(value, of_weights(counts)[:, None], jackknife, null=null)[0]


def _column(values: FloatArray) -> FloatArray:
    return values[:, None] if values.ndim == 1 else values


def ratio_or_nan(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return `above / below`, and NaN where there is nothing below."""
    ratio: FloatArray = np.divide(
        above,
        below,
        out=np.full(np.broadcast_shapes(above.shape, below.shape), np.nan),
        where=below != 0,
    )
    return ratio


def unknown(n: int, *, null: float) -> Estimate:
    """Return an estimate of which nothing is known."""
    nan = float("nan")
    return Estimate(
        value=nan,
        low=nan,
        high=nan,
        bca_low=nan,
        bca_high=nan,
        p_value=nan,
        n_instances=n,
        null=null,
    )


def _estimates(
    values: FloatArray, resampled: FloatArray, jackknife: FloatArray, *, null: float
) -> list[Estimate]:
    n = len(jackknife)
    values = np.broadcast_to(values, (resampled.shape[1],))
    return [
        _one_estimate(float(values[arm]), resampled[:, arm], jackknife[:, arm], n=n, null=null)
        for arm in range(resampled.shape[1])
    ]


def _one_estimate(
    value: float, resampled: FloatArray, jackknife: FloatArray, *, n: int, null: float
) -> Estimate:
    if n < 2 or not np.isfinite(value) or np.isnan(resampled).any():
        # One instance resampled is always itself: an interval of width 0 would be a lie.
        return replace(unknown(n, null=null), value=value)
    ordered = np.sort(resampled)
    low, high = _expanded_ends(ordered, n)
    bca_low, bca_high = _bca_ends(value, ordered, jackknife)
    return Estimate(
        value=value,
        low=low,
        high=high,
        bca_low=bca_low,
        bca_high=bca_high,
        p_value=_p_value(ordered, n=n, null=null),
        n_instances=n,
        null=null,
    )


def _expanded_ends(ordered: FloatArray, n: int) -> tuple[float, float]:
    """Return the ends of the expanded interval; NaN where they lie beyond all draws."""
    tail = expanded_tail(n)
    if tail * (len(ordered) + 1) < 1 and ordered[0] < ordered[-1]:
        return float("nan"), float("nan")
    low, high = _quantiles_of_sorted(ordered, np.array([tail, 1 - tail]))
    return float(low), float(high)


def expanded_tail(n_instances: int) -> float:
    """Return the share of resamples outside each end of the expanded 95% interval.

    Source: Hesterberg (2015), section 4.1: Phi(-sqrt(n / (n - 1)) t(n - 1, 0.975)).
    """
    n = n_instances
    return float(ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.025)))


def _p_value(ordered: FloatArray, *, n: int, null: float) -> float:
    """Return twice the smaller tail, expanded; draws at the null count for both tails.

    `expanded_tail` maps a level to a share of resamples; this is its inverse at the share
    (1 + smaller tail) / (B + 1).
    """
    at_or_below = int(np.searchsorted(ordered, null + _TIE, side="right"))
    at_or_above = len(ordered) - int(np.searchsorted(ordered, null - _TIE, side="left"))
    share = (1 + min(at_or_below, at_or_above)) / (len(ordered) + 1)
    return min(1.0, float(2 * stdtr(n - 1, np.sqrt((n - 1) / n) * ndtri(min(share, 0.5)))))


def _bca_ends(value: float, ordered: FloatArray, jackknife: FloatArray) -> tuple[float, float]:
    below = np.searchsorted(ordered, value - _TIE, side="left")
    at_or_below = np.searchsorted(ordered, value + _TIE, side="right")
    share_below = (below + at_or_below) / (2 * len(ordered))
    if not 0 < share_below < 1 or np.isnan(jackknife).any():
        return float("nan"), float("nan")
    bias = ndtri(share_below)
    gaps = jackknife.mean() - jackknife
    spread = float((gaps**2).sum())
    if spread <= _TIE**2:
        # Every instance says the same: the resamples are one point and so is the interval.
        return float(ordered[0]), float(ordered[-1])
    acceleration = float((gaps**3).sum()) / (6 * spread**1.5)
    z = bias + ndtri(np.array([0.025, 0.975]))
    low, high = _quantiles_of_sorted(ordered, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


def _quantiles_of_sorted(ordered: FloatArray, levels: FloatArray) -> FloatArray:
    """Return linearly interpolated quantiles of values that are sorted already."""
    quantiles: FloatArray = np.interp(levels * (len(ordered) - 1), np.arange(len(ordered)), ordered)
    return quantiles
