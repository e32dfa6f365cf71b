"""Claims of sameness: non-inferiority, equivalence, and "cheaper at the same rate".

"No significant difference" is never such a claim. These compare an interval with a margin fixed
before the sweep, so that few data give no claim instead of a comfortable one.

Sources: Tango (1998), Statistics in Medicine 17, for the score interval of paired proportions;
Schuirmann (1987) for two one-sided tests; Berger (1982), Technometrics 24, for intersection-union
claims, which need no correction.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, seed_means
from pipeline.analysis.rate_difference import MIN_DIFFERING, TIE, is_settled, rate_difference

ONE_SEED = "Tango, one seed"


@dataclass(frozen=True, kw_only=True, slots=True)
class SamenessClaim:
    """What may be said about two solve rates at a margin, one-sided level 0.025."""

    difference: float
    """Treatment minus control."""
    low: float
    high: float
    margin: float
    method: str
    """Where the interval comes from: `Tango`, `bootstrap`, or `ONE_SEED`, of several seeds."""
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


def sameness_of_solve_rates(
    control: FloatArray,
    treatment: FloatArray,
    *,
    margin: float,
    counts: FloatArray,
    fall_back: tuple[int, int] = (0, 0),
) -> SamenessClaim:
    """Return the claim that the data allow about two arms' solve rates.

    One seed, or seeds that all agree, use Tango's interval. Several use the instance bootstrap,
    unless fewer than `MIN_DIFFERING` instances differ: a bootstrap of no differences is [0, 0],
    which would prove anything. Then Tango's interval on one seed, named beforehand, takes over.

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
    n_differing = int((np.abs(after - before) > TIE).sum())
    settled = is_settled(before) and is_settled(after)
    one_seed = not settled and n_differing < MIN_DIFFERING
    if one_seed:
        # The instances whose prespecified seed is missing in one arm have no pair on that seed.
        before, after = control[:, fall_back[0]], treatment[:, fall_back[1]]
        both = ~np.isnan(before) & ~np.isnan(after)
        before, after = before[both], after[both]
        if not len(before):
            raise ValueError("no instance has the seed named beforehand in both arms")
    found = rate_difference(before, after, counts)
    return SamenessClaim(
        difference=found.value,
        low=found.low,
        high=found.high,
        margin=margin,
        method=ONE_SEED if one_seed else found.method,
        n_instances=found.n_instances,
        n_differing=n_differing,
    )


def is_cheaper_at_same_rate(sameness: SamenessClaim, cost_ratio: Estimate) -> bool:
    """Return whether both hold: not worse at the margin, and a cost ratio surely below 1.

    The cost is that of one price list: fewer tokens are no claim. An intersection-union claim:
    each part is tested at its full level.
    """
    return sameness.is_noninferior and cost_ratio.high < 1.0
