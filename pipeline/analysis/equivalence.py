"""Claims of sameness: non-inferiority, equivalence, and "cheaper at the same rate".

"No significant difference" is never such a claim. These compare an interval with a margin fixed
before the sweep, so that few data give no claim instead of a comfortable one.

Sources: Tango (1998), Statistics in Medicine 17, for the score interval of paired proportions;
Schuirmann (1987) for two one-sided tests; Berger (1982), Technometrics 24, for intersection-union
claims, which need no correction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import ndtri

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, mean_differences, seed_means

MIN_DIFFERING = 10
"""Fewer instances that differ than this, and the bootstrap of a solve rate is not trusted."""

_Z = float(ndtri(0.975))


@dataclass(frozen=True, kw_only=True, slots=True)
class SamenessClaim:
    """What may be said about two solve rates at a margin, one-sided level 0.025."""

    difference: float
    """Treatment minus control."""
    low: float
    high: float
    margin: float
    method: str
    """`Tango` or `bootstrap`: where the interval comes from."""
    n_instances: int
    n_differing: int
    """Instances whose seed means differ between the arms."""

    @property
    def is_noninferior(self) -> bool:
        """True where a loss as large as the margin is excluded."""
        return self.low > -self.margin

    @property
    def is_equivalent(self) -> bool:
        """True where a change as large as the margin is excluded on both sides."""
        return -self.margin < self.low and self.high < self.margin

    @property
    def is_inconclusive(self) -> bool:
        """True where a loss as large as the margin is neither excluded nor shown."""
        return not self.is_noninferior and not self.high < -self.margin

    @property
    def sentence(self) -> str:
        """One plain sentence that claims no more than the interval carries."""
        points = f"{self.margin * 100:g}-point margin"
        if self.is_equivalent:
            return f"equivalent within the {points}"
        if self.is_noninferior:
            return f"not worse, by the {points}"
        if self.high < -self.margin:
            return f"worse by more than the {points}"
        return f"not shown to be as good: the interval reaches past the {points}"


def tango_interval(
    only_treatment: int, only_control: int, n_pairs: int, *, z: float = _Z
) -> tuple[float, float]:
    """Return the score interval for treatment minus control in paired proportions.

    With no discordant pair the ends are +-z^2 / (n + z^2): 25 pairs say +-13 points, and a
    5-point margin needs 73.

    Args:
        only_treatment: pairs that only the treatment solved.
        only_control: pairs that only the control solved.
        n_pairs: all pairs, concordant ones included.
        z: normal quantile; the default gives 95%, hence one-sided 0.025 at each end.

    Raises:
        ValueError: counts that do not fit.
    """
    b, c, n = only_treatment, only_control, n_pairs
    if min(b, c) < 0 or b + c > n or n < 1:
        raise ValueError(f"{b} + {c} discordant of {n} pairs is impossible")
    centre = (b - c) / n

    def score(delta: float) -> float:
        """Return Tango's statistic at `delta`; it falls as `delta` grows."""
        slope = -b - c + (2 * n - b + c) * delta
        root = sqrt(max(slope * slope + 8 * n * c * delta * (1 - delta), 0.0))
        share = (root - slope) / (4 * n)
        variance = n * (2 * share + delta * (1 - delta))
        return (b - c - n * delta) / sqrt(variance) if variance > 0 else 0.0

    return (
        _root(score, target=z, inside=centre, outside=-1.0),
        _root(score, target=-z, inside=centre, outside=1.0),
    )


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


def sameness_of_solve_rates(
    control: FloatArray,
    treatment: FloatArray,
    *,
    margin: float,
    counts: FloatArray,
    fall_back: tuple[int, int] = (0, 0),
) -> SamenessClaim:
    """Return the claim that the data allow about two arms' solve rates.

    One seed uses Tango's interval. Several use the instance bootstrap, unless fewer than
    `MIN_DIFFERING` instances differ: a bootstrap of no differences is [0, 0], which would prove
    anything. Then Tango's interval on one seed, named beforehand, takes over.

    Args:
        control: resolved as 0 or 1, shape (instances, seeds), NaN for a seed not run.
        treatment: the same instances in the same order.
        margin: as a share, 0.05 for five points.
        counts: from `resample_counts`, for these instances.
        fall_back: columns of control and treatment that hold the seed named beforehand.

    Raises:
        ValueError: no instances, or a margin that is not positive.
    """
    if margin <= 0:
        raise ValueError(f"a margin must be positive, got {margin}")
    before, after = seed_means(control), seed_means(treatment)
    n_differing = int((np.abs(after - before) > 1e-9).sum())
    single = control.shape[1] == treatment.shape[1] == 1
    if not single and n_differing >= MIN_DIFFERING:
        estimate = mean_differences(before, after[:, None], counts)[0]
        low, high, method = estimate.low, estimate.high, "bootstrap"
        difference, n_instances = estimate.value, estimate.n_instances
    else:
        # The instances whose prespecified seed is missing in one arm have no pair on that seed.
        one, other = control[:, fall_back[0]], treatment[:, fall_back[1]]
        both = ~np.isnan(one) & ~np.isnan(other)
        gap = other[both] - one[both]
        n_instances = int(both.sum())
        if n_instances == 0:
            raise ValueError("no instance has the seed named beforehand in both arms")
        low, high = tango_interval(int((gap > 0).sum()), int((gap < 0).sum()), n_instances)
        difference, method = float(gap.mean()), "Tango"
    return SamenessClaim(
        difference=difference,
        low=low,
        high=high,
        margin=margin,
        method=method,
        n_instances=n_instances,
        n_differing=n_differing,
    )


def is_cheaper_at_same_rate(sameness: SamenessClaim, cost_ratio: Estimate) -> bool:
    """Return whether both hold: not worse at the margin, and a cost ratio surely below 1.

    An intersection-union claim: each part is tested at its full level.
    """
    return sameness.is_noninferior and cost_ratio.high < 1.0
