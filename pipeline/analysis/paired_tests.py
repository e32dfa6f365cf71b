"""Tests of no difference in solve rate, and the correction for many of them.

With one seed the test is exact McNemar; with several it is a permutation of arm labels within
each instance. Both condition on what was observed and need no distribution.

Not here: intervals (`bootstrap`), claims of sameness (`equivalence`): a large p value from this
module never supports one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from pipeline.analysis.arrays import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedTest:
    """A test of no difference: what it was, and its two-sided p value."""

    method: str
    p_value: float
    n_informative: int
    """Instances whose runs differ at all; the others cannot move the test."""


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
    control: FloatArray, treatment: FloatArray, *, draws: int, rng: np.random.Generator
) -> PairedTest:
    """Return the test that fits the seeds at hand: McNemar for one, label permutation else.

    Args:
        control: resolved as 0 or 1, shape (instances, seeds), NaN for a seed not run.
        treatment: the same instances in the same order; its number of seeds may differ.
        draws: permutations, used only where the exact distribution is not computed.
        rng: generator for those.
    """
    if control.shape[1] == treatment.shape[1] == 1:
        difference = treatment[:, 0] - control[:, 0]
        won, lost = int((difference > 0).sum()), int((difference < 0).sum())
        return PairedTest(
            method="exact McNemar", p_value=mcnemar_exact(won, lost), n_informative=won + lost
        )
    return label_permutation(control, treatment, draws=draws, rng=rng)


def label_permutation(
    control: FloatArray, treatment: FloatArray, *, draws: int, rng: np.random.Generator
) -> PairedTest:
    """Return the permutation test of arm labels within instances, on the mean of seed means.

    Under the null an instance's runs carry arm labels at random, so the treatment's number of
    solved runs is hypergeometric. Drawing that number is the same as shuffling the labels. Where
    all instances have the same seed counts the sum's distribution is computed exactly, by
    convolution.

    Source: Good, Permutation, Parametric and Bootstrap Tests of Hypotheses (2005), stratified
    permutation.
    """
    n_treatment = (~np.isnan(treatment)).sum(axis=1)
    n_control = (~np.isnan(control)).sum(axis=1)
    solved_treatment = np.nansum(treatment, axis=1).astype(np.int64)
    solved = solved_treatment + np.nansum(control, axis=1).astype(np.int64)
    informative = (solved > 0) & (solved < n_treatment + n_control)
    n_informative = int(informative.sum())
    if n_informative == 0:
        return PairedTest(method="label permutation", p_value=1.0, n_informative=0)
    m, c, k = n_treatment[informative], n_control[informative], solved[informative]
    won = solved_treatment[informative]
    if len(set(m)) == len(set(c)) == 1:
        p = _exact_permutation_p(
            int(won.sum()), solved=k, n_treatment=int(m[0]), n_control=int(c[0])
        )
        return PairedTest(method="exact label permutation", p_value=p, n_informative=n_informative)
    drawn = rng.hypergeometric(k, m + c - k, m, size=(draws, n_informative))
    weight = 1 / m + 1 / c
    expected = float((k * m / (m + c) * weight).sum())
    observed = abs(float((won * weight).sum()) - expected)
    extreme = int((np.abs(drawn @ weight - expected) >= observed - 1e-9).sum())
    return PairedTest(
        method="label permutation", p_value=(1 + extreme) / (draws + 1), n_informative=n_informative
    )


def _exact_permutation_p(
    won: int, *, solved: Sequence[int] | np.ndarray, n_treatment: int, n_control: int
) -> float:
    """Return the exact two-sided p value when every instance has the same seed counts."""
    total = n_treatment + n_control
    pmf = np.ones(1)
    for k in solved:
        ways = [
            comb(n_treatment, h) * comb(n_control, int(k) - h) if h <= k else 0
            for h in range(n_treatment + 1)
        ]
        pmf = np.convolve(pmf, np.array(ways, dtype=np.float64) / comb(total, int(k)))
    expected = float(np.sum(solved)) * n_treatment / total
    distance = np.abs(np.arange(len(pmf)) - expected)
    return min(1.0, float(pmf[distance >= abs(won - expected) - 1e-9].sum()))


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
