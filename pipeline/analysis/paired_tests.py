"""Tests of no difference in solve rate, and the correction for many of them.

The instance is exchangeable, its seeds are not independent of each other. So whole arms change
places within an instance, and never single runs: that would call seeds that agree (temperature 0)
independent evidence. With one seed, or with seeds that all agree, this is exact McNemar.

Not here: intervals (`bootstrap`), claims of sameness (`equivalence`): a large p value from this
module never supports one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, lcm

import numpy as np

from pipeline.analysis.arrays import FloatArray, IntArray
from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.rate_difference import TIE, is_settled


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedTest:
    """A test of no difference: what it was, and its two-sided p value."""

    method: str
    p_value: float
    n_informative: int
    """Instances whose seed means differ between the arms; the others cannot move the test."""


def mcnemar_exact(only_treatment: int, only_control: int) -> float:
    """Return the two-sided p value of exact McNemar, from the two discordant counts.

    Source: the binomial test with p = 1/2 on discordant pairs; McNemar (1947), Psychometrika 12.
    """
    n = only_treatment + only_control
    if n == 0:
        return 1.0
    tail = sum(comb(n, k) for k in range(min(only_treatment, only_control) + 1))
    return min(1.0, float(2 * tail / 2**n))


def solve_rate_test(
    control: FloatArray, treatment: FloatArray, *, bootstrap_p: float
) -> PairedTest:
    """Return the test that fits the seeds at hand.

    Exact McNemar where all seeds of an instance agree in each arm (as one seed does), sign flips
    of whole arms else. Arms with unequal numbers of seeds are not exchangeable: there the instance
    bootstrap's p value stands, but never a smaller one than by sign flips, since with few
    instances that differ the bootstrap alone rejects up to 7% of true nulls.

    Args:
        control: resolved as 0 or 1, shape (instances, seeds), NaN for a seed not run.
        treatment: the same instances in the same order; its number of seeds may differ.
        bootstrap_p: of the difference of the mean seed means, from `bootstrap`.
    """
    before, after = seed_means(control), seed_means(treatment)
    n_informative = int((np.abs(after - before) > TIE).sum())
    if not np.array_equal(_seeds_by_instance(control), _seeds_by_instance(treatment)):
        method = "instance bootstrap"
        p = max(bootstrap_p, sign_flip_p(control, treatment))
    elif is_settled(before) and is_settled(after):
        won, lost = int((after > before).sum()), int((after < before).sum())
        method, p = "exact McNemar", mcnemar_exact(won, lost)
    else:
        method, p = "sign flips of arms", sign_flip_p(control, treatment)
    return PairedTest(method=method, p_value=p, n_informative=n_informative)


def sign_flip_p(control: FloatArray, treatment: FloatArray) -> float:
    """Return the exact two-sided p value of flipping the signs of per-instance differences.

    Differences of seed means are whole multiples of one over the least common multiple of the
    seed counts, so the sum over all 2^k flips has its distribution by convolution.

    Args:
        control: resolved as 0 or 1, shape (instances, seeds), NaN for a seed not run.
        treatment: the same instances in the same order.

    Source: Fisher (1935), The Design of Experiments, section 21: the paired randomisation test.
    """
    counts = (_seeds_by_instance(arm).tolist() for arm in (control, treatment))
    unit = lcm(*(n for arm in counts for n in arm))
    steps = np.rint((seed_means(treatment) - seed_means(control)) * unit).astype(np.int64)
    steps = steps[steps != 0]
    if not len(steps):
        return 1.0
    steps //= np.gcd.reduce(steps)
    reach = int(np.abs(steps).sum())
    # Entry i is the chance of the sum i - reach; every step moves half of it up and half down.
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for step in np.abs(steps).tolist():
        chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2
    distance = np.abs(np.arange(-reach, reach + 1))
    return min(1.0, float(chances[distance >= abs(int(steps.sum()))].sum()))


def _seeds_by_instance(resolved: FloatArray) -> IntArray:
    counts: IntArray = (~np.isnan(resolved)).sum(axis=1)
    return counts


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p values, in the order given; NaN stays NaN and is not counted.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p == p)
    adjusted = [float("nan")] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, p * (len(known) - rank)))
        adjusted[i] = running
    return adjusted
