"""Does one repository carry the effect? Leave-one-out, and intervals over repositories.

A sensitivity check and not the primary interval: SWE-bench Verified has 12 repositories, of which
one holds nearly half of the tasks, and twelve clusters are few.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, statistic
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import ArmOutcomes, Group

MIN_REPOSITORIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositorySensitivity:
    """How much an effect depends on single repositories."""

    outcome: str
    n_repositories: int
    largest_share: float
    """Share of the instances in the largest repository."""
    lowest: float
    """Smallest value of the effect with one repository left out."""
    lowest_without: str
    highest: float
    highest_without: str
    clustered: Estimate
    """Repositories resampled instead of instances; NaN ends with fewer than three."""


def repository_sensitivity(
    group: Group, *, arm: str, reference: str, draws: Draws
) -> list[RepositorySensitivity]:
    """Return the sensitivity of the token ratio and, where graded, of the solve difference."""
    treatment, control = group.arms[arm], group.arms[reference]
    found = []
    paired = treatment.complete & control.complete
    if paired.any():
        before, after = (a.mean_of("input_tokens")[paired] for a in (control, treatment))
        found.append(_sensitivity(group, "input token ratio", paired, after, before, 1.0, draws))
    graded = treatment.graded & control.graded
    if graded.any():
        gap = _resolved(treatment)[graded] - _resolved(control)[graded]
        ones = np.ones(len(gap))
        found.append(_sensitivity(group, "solve difference", graded, gap, ones, 0.0, draws))
    return found


def _resolved(arm: ArmOutcomes) -> FloatArray:
    known = ~np.isnan(arm.resolved)
    sums = np.where(known, arm.resolved, 0.0).sum(axis=1)
    means: FloatArray = np.full(len(sums), np.nan)
    np.divide(sums, known.sum(axis=1), out=means, where=known.any(axis=1))
    return means


def _sensitivity(
    group: Group,
    outcome: str,
    mask: np.ndarray,
    above: FloatArray,
    below: FloatArray,
    null: float,
    draws: Draws,
) -> RepositorySensitivity:
    repos = np.array(group.repos, dtype=object)[mask]
    names, index = np.unique(repos.astype(str), return_inverse=True)
    tops = np.bincount(index, weights=above)
    bottoms = np.bincount(index, weights=below)
    sizes = np.bincount(index)

    def of_weights(weights: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            value: FloatArray = (weights @ tops) / (weights @ bottoms)
        return value

    if len(names) < 2:
        nan = float("nan")
        left_out = np.full(1, nan)
    else:
        left_out = of_weights(np.ones((len(names), len(names))) - np.eye(len(names)))
    few = len(names) < MIN_REPOSITORIES
    counts = draws.of(len(names))
    estimate = statistic(of_weights, counts=counts[:1] if few else counts, null=null)
    return RepositorySensitivity(
        outcome=outcome,
        n_repositories=len(names),
        largest_share=float(sizes.max() / sizes.sum()),
        lowest=float(left_out.min()),
        lowest_without=str(names[int(np.argmin(left_out))]),
        highest=float(left_out.max()),
        highest_without=str(names[int(np.argmax(left_out))]),
        clustered=_without_interval(estimate) if few else estimate,
    )


def _without_interval(estimate: Estimate) -> Estimate:
    nan = float("nan")
    return Estimate(
        value=estimate.value,
        low=nan,
        high=nan,
        bca_low=nan,
        bca_high=nan,
        p_value=nan,
        n_instances=estimate.n_instances,
        null=estimate.null,
    )
