"""Noise between seeds, pass@k and missing pairs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.missing import worst_case_difference
from pipeline.analysis.replication import pass_at_k, pass_hat_k, seed_noise


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_and_pass_hat_k_average_over_all_choices_of_k_runs(runs: list[bool], k: int):
    at, hat = pass_at_k(len(runs), sum(runs), k), pass_hat_k(len(runs), sum(runs), k)
    choices = list(combinations(runs, k))
    if not choices:
        assert np.isnan([at, hat]).all()
    else:
        assert at == pytest.approx(np.mean([any(c) for c in choices]))
        assert hat == pytest.approx(np.mean([all(c) for c in choices]))


def test_a_single_seed_has_no_noise_of_its_own():
    one = np.ones((4, 1))
    noise = seed_noise(one, one, one)
    assert noise.n_seed_pairs == 0
    assert np.isnan([noise.discordance, noise.token_ratio_low, noise.token_log_sd]).all()


def test_noise_between_seeds_counts_discordance_and_spread():
    resolved = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, np.nan]])
    tokens = np.array([[10.0, 20.0], [10.0, 10.0], [10.0, 10.0], [10.0, np.nan]])
    noise = seed_noise(resolved, tokens, tokens)
    assert noise.discordance == pytest.approx(1 / 3)
    assert (noise.token_ratio_low, noise.token_ratio_high) == pytest.approx((30 / 40, 40 / 30))
    assert noise.token_log_sd == pytest.approx(np.log(2) / np.sqrt(2) / np.sqrt(3))


def test_lost_pairs_bound_the_difference_in_both_directions():
    control = np.array([[1.0], [0.0], [np.nan], [1.0]])
    treatment = np.array([[1.0], [1.0], [1.0], [np.nan]])
    bounds = worst_case_difference(control, treatment)
    assert (bounds.low, bounds.high) == (0.75 - 0.75, 1.0 - 0.5)
    assert (bounds.n_planned, bounds.n_paired) == (4, 2)


def test_nothing_lost_leaves_nothing_open():
    whole = np.array([[1.0, 0.0], [0.0, 0.0]])
    bounds = worst_case_difference(whole, whole)
    assert (bounds.low, bounds.high) == (0, 0)
    assert bounds.n_planned == bounds.n_paired == 2
