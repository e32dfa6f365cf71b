"""The interval of a difference in solve rate, over all seeds, however few instances differ.

The bootstrap of few differences is too narrow, and that of none is [0, 0]. Tango's score interval
holds there. It is made for pairs that are won or lost; a pair of seed means may be won by a half.
Such a pair adds its half to the wins: since a difference d of two shares has d^2 <= |d|, the
variance that Tango's interval then assumes is at least the true one, and the interval is never too
narrow. With one seed it is Tango's own.

Source: Tango (1998), Statistics in Medicine 17.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import mean_differences

MIN_DIFFERING = 10
"""Fewer instances that differ than this, and the bootstrap of a solve rate is not trusted."""

TIE = 1e-9
"""Seed means closer than this are equal: 1/3 + 2/3 is not exactly 1 in floats."""

Z = float(ndtri(0.975))


@dataclass(frozen=True, kw_only=True, slots=True)
class RateDifference:
    """Treatment minus control in solve rate with its 95% interval, as shares."""

    value: float
    low: float
    high: float
    method: str
    """`Tango` or `bootstrap`."""
    n_instances: int
    n_differing: int
    """Instances whose seed means differ between the arms."""


def is_settled(means: FloatArray) -> bool:
    """Return whether all seeds of every instance agree: one seed would have said the same."""
    return bool(np.isin(means, (0.0, 1.0)).all())


def rate_difference(
    control: FloatArray, treatment: FloatArray, counts: FloatArray
) -> RateDifference:
    """Return the difference of the mean seed means.

    Tango's interval where every seed mean is 0 or 1, or where fewer than `MIN_DIFFERING` instances
    differ; the instance bootstrap's else.

    Args:
        control: seed means of resolved, shape (instances,).
        treatment: of the same instances.
        counts: from `resample_counts`, for these instances.

    Raises:
        ValueError: no instances.
    """
    gap = treatment - control
    n_differing = int((np.abs(gap) > TIE).sum())
    settled = is_settled(control) and is_settled(treatment)
    if settled or n_differing < MIN_DIFFERING:
        won, lost = float(gap[gap > TIE].sum()), float(-gap[gap < -TIE].sum())
        low, high = tango_interval(won, lost, len(gap))
        value, method = (won - lost) / len(gap), "Tango"
    else:
        estimate = mean_differences(control, treatment[:, None], counts)[0]
        value, low, high, method = estimate.value, estimate.low, estimate.high, "bootstrap"
    return RateDifference(
        value=value,
        low=low,
        high=high,
        method=method,
        n_instances=len(gap),
        n_differing=n_differing,
    )


def tango_interval(
    only_treatment: float, only_control: float, n_pairs: int, *, z: float = Z
) -> tuple[float, float]:
    """Return the score interval for treatment minus control in paired proportions.

    With no discordant pair the ends are +-z^2 / (n + z^2): 25 pairs say +-13 points, and a
    5-point margin needs 73.

    Args:
        only_treatment: pairs that only the treatment solved, or the sum of what it gained.
        only_control: pairs that only the control solved, or the sum of what it lost.
        n_pairs: all pairs, concordant ones included.
        z: normal quantile; the default gives 95%, hence one-sided 0.025 at each end.

    Raises:
        ValueError: counts that do not fit.
    """
    b, c, n = only_treatment, only_control, n_pairs
    if min(b, c) < 0 or b + c > n + TIE or n < 1:
        raise ValueError(f"{b:g} + {c:g} discordant of {n} pairs is impossible")
    centre = (b - c) / n

    def score(delta: float) -> float:
        return float(tango_score(np.array(b), np.array(c), n, delta))

    return (
        _root(score, target=z, inside=centre, outside=-1.0),
        _root(score, target=-z, inside=centre, outside=1.0),
    )


def tango_score(
    only_treatment: FloatArray, only_control: FloatArray, n_pairs: int, delta: float
) -> FloatArray:
    """Return Tango's statistic at a difference of `delta`; it falls as `delta` grows."""
    b, c, n = only_treatment, only_control, n_pairs
    slope = -b - c + (2 * n - b + c) * delta
    root = np.sqrt(np.maximum(slope * slope + 8 * n * c * delta * (1 - delta), 0.0))
    share = (root - slope) / (4 * n)
    variance = n * (2 * share + delta * (1 - delta))
    score: FloatArray = np.divide(
        b - c - n * delta,
        np.sqrt(np.maximum(variance, 0.0)),
        out=np.zeros(np.broadcast_shapes(b.shape, c.shape)),
        where=variance > 0,
    )
    return score


def _root(
    score: Callable[[float], float], *, target: float, inside: float, outside: float
) -> float:
    """Return where the statistic passes `target` between the estimate and an end of [-1, 1]."""
    near, far = inside, outside
    for _ in range(60):
        middle = (near + far) / 2
        if abs(score(middle)) < abs(target):
            near = middle
        else:
            far = middle
    return (near + far) / 2
