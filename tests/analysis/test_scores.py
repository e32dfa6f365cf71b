"""Arms' mean scores: the statistics against slow references, their error rates, and the report."""

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from pipeline.analysis.bootstrap import mean_differences, resample_counts
from pipeline.analysis.scores import ScoreContrast, power_not_worse, score_sentences, sign_flip_p


def slow_sign_flip_p(differences: list[float]) -> float:
    """Return the share of all sign assignments whose sum is as far from 0 as the observed one."""
    observed = abs(sum(differences))
    signs = list(itertools.product([1, -1], repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(row, differences, strict=True))) for row in signs]
    return sum(total >= observed - 1e-12 for total in sums) / len(signs)


@pytest.mark.parametrize(
    "differences",
    [
        [0.1, 0.2, -0.05, 0.3, 0.15],
        [0.5] * 6,
        [0.25, -0.25, 0.5, -0.5],
        [0.111, 0.222, 0, 0.333, 0],
    ],
)
def test_random_sign_flips_come_close_to_all_of_them(differences: list[float]) -> None:
    p = sign_flip_p(np.array(differences), seed=1)
    assert p == pytest.approx(slow_sign_flip_p(differences), abs=0.02)


def test_equal_scores_and_no_instances_differ_in_nothing() -> None:
    assert sign_flip_p(np.zeros(10), seed=1) == 1
    assert sign_flip_p(np.empty(0), seed=1) == 1


@pytest.mark.parametrize("n", [12, 50])
def test_a_true_null_is_rejected_in_one_of_twenty_sweeps(n: int) -> None:
    rng = np.random.default_rng(5)
    p = [sign_flip_p(rng.choice([0, 0, 0.75, 1, -1, -0.75], n), seed=1) for _ in range(400)]
    assert np.mean(np.array(p) <= 0.05) <= 0.06 + 2 * np.sqrt(0.05 * 0.95 / 400)


def test_power_grows_with_instances_and_is_that_of_the_t_bound() -> None:
    rng = np.random.default_rng(7)
    pool = rng.normal(0, 0.3, 400)
    few, many = (power_not_worse(pool[:n], 0.05, seed=1) for n in (50, 400))
    assert few < many
    centered = pool[:50] - pool[:50].mean()
    shown = [
        ttest_1samp(rng.choice(centered, 50), 0).confidence_interval(0.95).low > -0.05
        for _ in range(600)
    ]
    assert few == pytest.approx(np.mean(shown), abs=0.06)
    assert np.isnan(power_not_worse(pool[:1], 0.05, seed=1))


def test_sentences_claim_only_what_the_interval_allows() -> None:
    old = np.full(40, 0.5)
    for shift, claim in ((0.0, "not worse by 0.05"), (-0.1, "not shown to be as good")):
        new = old + shift
        counts = resample_counts(40, draws=500, rng=np.random.default_rng(1))
        found = ScoreContrast(
            arm="mask",
            n_paired=40,
            score=float(new.mean()),
            reference_score=0.5,
            difference=mean_differences(old, new[:, None], counts)[0],
            p_value=1.0,
            holm_p=1.0,
            margin=0.05,
            power_not_worse=0.8,
        )
        (sentence,) = score_sentences([found])
        assert claim in sentence
        assert f"mask {0.5 + shift:.3f} against 0.500" in sentence
