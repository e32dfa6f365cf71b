"""The difference in solve rate with what a difficulty prior explains of it taken out.

Where the prior knows more instances than were run (a sample, or pairs that are lost), the mean over
all of them is known better than that over the sample: the regression of the difference on the prior
carries it over. Cross-fitted: an instance's own difference has no part in its prediction. On the
very instances that the prior knows the estimate is the plain one.

Source: Deng et al. (2013), WSDM, CUPED; Wager et al. (2016), PNAS 113, for the cross-fitting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.rate_difference import Z
from pipeline.fields.identity import digest_of

N_FOLDS = 10
MIN_INSTANCES = 30
"""With fewer pairs a regression with three coefficients in each fold says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdjustedDifference:
    """Treatment minus control in solve rate over all instances that the prior knows."""

    arm: str
    value: float
    low: float
    high: float
    n_paired: int
    n_known: int
    variance_ratio: float
    """Over the variance of the plain difference of the pairs."""


def adjusted_differences(
    group: Group, rates: Mapping[str, float], *, reference: str
) -> Sequence[AdjustedDifference]:
    """Return the adjusted difference of every arm with enough pairs on instances with a prior."""
    if reference not in group.arms:
        return ()
    control = group.arms[reference]
    found = (
        _adjusted(arm, control, group.instance_ids, rates)
        for name, arm in group.arms.items()
        if name != reference
    )
    return [difference for difference in found if difference is not None]


def _adjusted(
    arm: ArmOutcomes, control: ArmOutcomes, instance_ids: Sequence[str], rates: Mapping[str, float]
) -> AdjustedDifference | None:
    known = np.array([name in rates for name in instance_ids], dtype=bool)
    paired = arm.graded & control.graded & known
    if paired.sum() < MIN_INSTANCES:
        return None
    gaps = (seed_means(arm.resolved) - seed_means(control.resolved))[paired]
    names = [name for name, is_in in zip(instance_ids, paired, strict=True) if is_in]
    # By the name, so that an instance is in its fold whatever else was run.
    folds = np.array([int(digest_of(name, length=8), 16) % N_FOLDS for name in names])
    value, variance = cross_fitted(
        gaps, _terms([rates[name] for name in names]), _terms(list(rates.values())), folds
    )
    plain = float(gaps.var(ddof=1)) / len(gaps)
    return AdjustedDifference(
        arm=arm.arm,
        value=value,
        low=value - Z * sqrt(variance),
        high=value + Z * sqrt(variance),
        n_paired=len(gaps),
        n_known=len(rates),
        variance_ratio=variance / plain if plain > 0 else float("nan"),
    )


def cross_fitted(
    gaps: FloatArray, terms: FloatArray, all_terms: FloatArray, folds: FloatArray
) -> tuple[float, float]:
    """Return the mean gap over all instances, and its variance over samples of instances.

    Args:
        gaps: of the instances that were run.
        terms: of their priors, shape (instances, terms), the first one constant.
        all_terms: of all instances that are known, those that were run among them.
        folds: of the instances that were run.
    """
    residuals, predicted, weights = np.empty(len(gaps)), np.zeros(len(all_terms)), 0.0
    for fold in np.unique(folds):
        left_out = folds == fold
        fit = np.linalg.lstsq(terms[~left_out], gaps[~left_out], rcond=None)[0]
        residuals[left_out] = gaps[left_out] - terms[left_out] @ fit
        predicted += left_out.sum() * (all_terms @ fit)
        weights += left_out.sum()
    predicted /= weights
    value = float(residuals.mean() + predicted.mean())
    variance = residuals.var(ddof=1) / len(residuals) + predicted.var() / len(predicted)
    return value, float(variance)


def _terms(rates: Sequence[float]) -> FloatArray:
    rate = np.array(rates)
    return np.stack([np.ones_like(rate), rate, rate * (1 - rate)], axis=1)
