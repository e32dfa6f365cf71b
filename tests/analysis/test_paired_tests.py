"""Tests of no difference: exactness against enumeration and SciPy."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.analysis.paired_tests import (
    holm,
    label_permutation,
    mcnemar_exact,
    solve_rate_test,
)

RNG = np.random.default_rng(0)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_binomial_test_on_discordant_pairs(won: int, lost: int):
    if won + lost:
        assert mcnemar_exact(won, lost) == pytest.approx(stats.binomtest(won, won + lost).pvalue)


def test_mcnemar_without_discordant_pairs_is_one():
    assert mcnemar_exact(0, 0) == 1


def brute_force(control: np.ndarray, treatment: np.ndarray) -> float:
    """Shuffle labels within each instance in every possible way; NaN marks a seed not run."""
    sums, observed = np.zeros(1), 0.0
    for c, t in zip(control, treatment, strict=True):
        c, t = c[~np.isnan(c)], t[~np.isnan(t)]
        pool = np.concatenate([t, c])
        of_instance = np.array(
            [
                np.mean([pool[i] for i in order[: len(t)]])
                - np.mean([pool[i] for i in order[len(t) :]])
                for order in permutations(range(len(pool)))
            ]
        )
        sums = (sums[:, None] + of_instance[None, :]).ravel()
        observed += t.mean() - c.mean()
    return float(np.mean(np.abs(sums) >= abs(observed) - 1e-9))


def test_the_permutation_test_equals_full_enumeration():
    control = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    treatment = np.array([[1.0], [1.0], [1.0], [0.0]])
    test = label_permutation(control, treatment, draws=1, rng=RNG)
    assert test.method == "exact label permutation"
    assert test.p_value == pytest.approx(brute_force(control, treatment))
    assert test.n_informative == 4


def test_with_one_seed_the_permutation_test_is_mcnemar():
    control = np.array([[0.0]] * 9 + [[1.0]] * 6)
    treatment = np.array([[1.0]] * 7 + [[0.0]] * 4 + [[1.0]] * 4)
    exact = mcnemar_exact(7, 2)
    assert label_permutation(control, treatment, draws=1, rng=RNG).p_value == pytest.approx(exact)
    test = solve_rate_test(control, treatment, draws=1, rng=RNG)
    assert (test.method, test.n_informative) == ("exact McNemar", 9)
    assert test.p_value == exact


def test_unequal_seed_counts_between_instances_are_shuffled_by_the_thousand():
    control = np.array([[0.0, np.nan], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.nan]])
    treatment = np.array([[1.0], [1.0], [1.0], [1.0], [1.0]])
    test = label_permutation(control, treatment, draws=40_000, rng=np.random.default_rng(2))
    assert test.method == "label permutation"
    assert test.p_value == pytest.approx(brute_force(control, treatment), abs=0.01)


def test_a_null_effect_gives_small_p_values_no_more_often_than_it_may():
    rng = np.random.default_rng(8)
    p_values = []
    for _ in range(300):
        ability = rng.beta(1, 1, size=40)
        control = rng.binomial(1, ability[:, None], size=(40, 3)).astype(float)
        treatment = rng.binomial(1, ability[:, None], size=(40, 2)).astype(float)
        p_values.append(label_permutation(control, treatment, draws=1, rng=rng).p_value)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.08


def test_instances_that_all_agree_cannot_move_the_test():
    ones = np.ones((5, 2))
    assert label_permutation(ones, ones, draws=10, rng=RNG).p_value == 1


def test_holm_multiplies_the_smallest_by_all_and_never_reverses_order():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])


def test_holm_leaves_out_what_is_unknown():
    adjusted = holm([0.02, float("nan"), 0.5])
    assert adjusted[0] == pytest.approx(0.04)
    assert np.isnan(adjusted[1])
