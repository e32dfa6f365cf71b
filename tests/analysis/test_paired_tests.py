"""Tests of no difference: exactness against enumeration and SciPy, and how often they err."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analysis.bootstrap import mean_differences, resample_counts, seed_means
from pipeline.analysis.paired_tests import PairedTest, holm, mcnemar_exact, sign_flip_p
from pipeline.analysis.paired_tests import solve_rate_test as fast_test

from . import reference


def solve_rate_test(control: np.ndarray, treatment: np.ndarray) -> PairedTest:
    """The test with the bootstrap that goes with it."""
    counts = resample_counts(len(control), draws=2000, rng=np.random.default_rng(1))
    before, after = seed_means(control), seed_means(treatment)
    p = mean_differences(before, after[:, None], counts)[0].p_value
    return fast_test(control, treatment, bootstrap_p=p)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_binomial_test_on_discordant_pairs(won: int, lost: int):
    assert mcnemar_exact(won, lost) == pytest.approx(reference.mcnemar_p(won, lost))


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_sign_flips_equal_full_enumeration(n: int, m: int, k: int, seed: int):
    rng = np.random.default_rng(seed)
    control = rng.integers(0, 2, size=(n, m)).astype(float)
    treatment = rng.integers(0, 2, size=(n, k)).astype(float)
    expected = reference.sign_flip_p(control, treatment)
    assert sign_flip_p(control, treatment) == pytest.approx(expected)


def test_sign_flips_take_the_seeds_that_each_instance_has():
    control = np.array([[0.0, np.nan, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, np.nan]])
    treatment = np.array([[1.0, 0.0, np.nan], [1.0, 1.0, 1.0], [1.0, 1.0, np.nan]])
    expected = reference.sign_flip_p(control, treatment)
    assert sign_flip_p(control, treatment) == pytest.approx(expected)


def test_with_one_seed_the_test_is_mcnemar():
    control = np.array([[0.0]] * 9 + [[1.0]] * 6)
    treatment = np.array([[1.0]] * 7 + [[0.0]] * 4 + [[1.0]] * 4)
    test = solve_rate_test(control, treatment)
    assert (test.method, test.n_informative) == ("exact McNemar", 9)
    assert test.p_value == mcnemar_exact(7, 2)
    assert sign_flip_p(control, treatment) == pytest.approx(mcnemar_exact(7, 2))


def test_seeds_that_agree_are_no_further_evidence():
    """12 won and 5 lost of 75, three seeds that all say so: shuffling single runs said < 0.001."""
    control = np.repeat([[0.0]] * 12 + [[1.0]] * 5 + [[1.0]] * 58, 3, axis=1)
    treatment = np.repeat([[1.0]] * 12 + [[0.0]] * 5 + [[1.0]] * 58, 3, axis=1)
    assert solve_rate_test(control, treatment).p_value == pytest.approx(0.1435, abs=1e-4)


def test_with_unequal_seed_counts_the_bootstrap_decides_but_never_alone():
    rng = np.random.default_rng(2)
    chance = rng.beta(1, 1, size=60)[:, None]
    control = rng.binomial(1, chance, size=(60, 5)).astype(float)
    treatment = rng.binomial(1, np.clip(chance + 0.15, 0, 1), size=(60, 1)).astype(float)
    test = fast_test(control, treatment, bootstrap_p=0.9)
    assert (test.method, test.p_value) == ("instance bootstrap", 0.9)
    flips = sign_flip_p(control, treatment)
    assert fast_test(control, treatment, bootstrap_p=1e-4).p_value == pytest.approx(flips)


def drawn_runs(
    chance: np.ndarray, n_seeds: int, correlation: float, rng: np.random.Generator
) -> np.ndarray:
    """Runs of one arm: a seed repeats one draw of the instance with chance sqrt(correlation)."""
    shape = (len(chance), n_seeds)
    shared = rng.random((len(chance), 1)) < chance[:, None]
    fresh = rng.random(shape) < chance[:, None]
    return np.where(rng.random(shape) < np.sqrt(correlation), shared, fresh).astype(float)


@pytest.mark.parametrize("n_instances", [25, 100])
@pytest.mark.parametrize("seeds", [(2, 2), (3, 3), (5, 5), (5, 1)])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 1.0])
def test_true_nulls_are_rejected_at_most_as_often_as_announced(
    correlation: float, seeds: tuple[int, int], n_instances: int
):
    """500 sweeps each; benchmarks/solve_rate_tests.py runs more (docs/analysis.md)."""
    rng = np.random.default_rng(8)
    rejected = 0
    for _ in range(500):
        chance = rng.beta(0.5, 0.5, size=n_instances)
        control, treatment = (drawn_runs(chance, k, correlation, rng) for k in seeds)
        if seeds[0] == seeds[1]:
            test = fast_test(control, treatment, bootstrap_p=float("nan"))
        else:
            test = solve_rate_test(control, treatment)
        rejected += test.p_value <= 0.05
    assert rejected / 500 <= 0.06


def test_instances_that_all_agree_cannot_move_the_test():
    ones = np.ones((5, 2))
    assert solve_rate_test(ones, ones).p_value == 1


def test_holm_multiplies_the_smallest_by_all_and_never_reverses_order():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])


def test_holm_leaves_out_what_is_unknown():
    adjusted = holm([0.02, float("nan"), 0.5])
    assert adjusted[0] == pytest.approx(0.04)
    assert np.isnan(adjusted[1])
