"""Power, noise between seeds, pass@k and missing pairs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.missing import worst_case_difference
from pipeline.analysis.power import detectable_difference, noninferiority_power, power_table
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


def test_more_instances_detect_smaller_differences():
    found = [detectable_difference(n, 0.1) for n in (100, 500, 2000)]
    assert found[0] > found[1] > found[2]


def test_connors_formula_gives_the_sample_size_it_promises():
    difference = detectable_difference(500, 0.1)
    needed = (1.96 * 0.1**0.5 + 0.8416 * (0.1 - difference**2) ** 0.5) ** 2 / difference**2
    assert needed == pytest.approx(500, rel=1e-3)


def test_25_instances_detect_nothing_at_ten_percent_discordance():
    assert np.isnan(detectable_difference(25, 0.1))


def test_power_for_noninferiority_agrees_with_simulation():
    rng = np.random.default_rng(0)
    n, discordance, margin = 400, 0.12, 0.05
    drawn = rng.multinomial(n, [discordance / 2, discordance / 2, 1 - discordance], size=4000)
    gap = (drawn[:, 0] - drawn[:, 1]) / n
    spread = np.sqrt((drawn[:, 0] + drawn[:, 1]) / n - gap**2) / np.sqrt(n)
    simulated = np.mean(gap - 1.96 * spread > -margin)
    assert noninferiority_power(n, discordance, margin=margin) == pytest.approx(simulated, abs=0.03)


def test_the_power_table_has_a_row_for_each_size_and_discordance():
    rows = power_table([25, 500], discordances=[0.0, 0.1], margin=0.05)
    assert [(r.n_instances, r.discordance) for r in rows] == [
        (25, 0.0), (25, 0.1), (500, 0.0), (500, 0.1),
    ]  # fmt: skip
    assert [r.noninferiority_power for r in rows[:1]] == [0.0]


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
