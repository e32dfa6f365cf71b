"""What pairs that are not there could have done to a solve rate.

A contrast uses the instances that are complete in both arms. Those that are not are never
dropped in silence: they are counted, and the two worst cases bound what they could have changed.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray

MAX_MISSING_SHARE = 0.01
"""More lost pairs than this, and a contrast is refused unless asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstCase:
    """The difference in solve rate, bounded over everything the lost runs could have been."""

    low: float
    high: float
    n_planned: int
    n_paired: int

    @property
    def missing_share(self) -> float:
        """Share of planned instances without a complete pair; NaN when none was planned."""
        return 1 - self.n_paired / self.n_planned if self.n_planned else float("nan")

    @property
    def is_refused(self) -> bool:
        """True where more than `MAX_MISSING_SHARE` of the pairs are lost."""
        return self.missing_share > MAX_MISSING_SHARE


def worst_case_difference(control: FloatArray, treatment: FloatArray) -> WorstCase:
    """Return bounds for treatment minus control in solve rate over *all* planned instances.

    Each lost run counts once as solved and once as not, whichever hurts (or helps) most.

    Args:
        control: resolved as 0 or 1, shape (instances, planned seeds), NaN where lost.
        treatment: the same instances; its number of planned seeds may differ.
    """
    complete = ~np.isnan(control).any(axis=1) & ~np.isnan(treatment).any(axis=1)

    def mean_filled(values: FloatArray, lost_as: float) -> float:
        filled = np.where(np.isnan(values), lost_as, values)
        return float(filled.mean(axis=1).mean()) if len(values) else float("nan")

    return WorstCase(
        low=mean_filled(treatment, 0.0) - mean_filled(control, 1.0),
        high=mean_filled(treatment, 1.0) - mean_filled(control, 0.0),
        n_planned=len(control),
        n_paired=int(complete.sum()),
    )
