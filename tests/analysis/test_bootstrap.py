"""Intervals: against SciPy, against brute force, and by how often they cover the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pipeline.analysis.bootstrap import (
    expanded_tail,
    geometric_mean_ratios,
    mean_differences,
    ratios_of_sums,
    resample_counts,
    seed_means,
    statistic,
)
from pipeline.analysis.medians import ratio_of_medians

from . import reference


def counts_of(n: int, *, draws: int = 2000, seed: int = 1) -> np.ndarray:
    return resample_counts(n, draws=draws, rng=np.random.default_rng(seed))


def test_every_resample_draws_as_many_instances_as_there_are():
    counts = counts_of(37, draws=50)
    assert counts.shape == (50, 37)
    assert (counts.sum(axis=1) == 37).all()


def test_resampling_nothing_is_refused():
    with pytest.raises(ValueError, match="without instances"):
        counts_of(0)


@pytest.mark.parametrize("n", [7, 20])
def test_interval_and_p_value_equal_a_plain_loop_over_the_same_draws(n: int):
    rng = np.random.default_rng(3)
    control, treatment = rng.lognormal(size=n), rng.lognormal(size=n)
    counts = counts_of(n, draws=400)
    values = reference.resampled(reference.ratio_of_totals(control, treatment), counts)
    estimate = ratios_of_sums(control, treatment[:, None], counts)[0]
    assert estimate.value == pytest.approx(treatment.sum() / control.sum())
    assert (estimate.low, estimate.high) == pytest.approx(reference.expanded_interval(values, n))
    assert estimate.p_value == pytest.approx(reference.expanded_p(values, n, null=1.0))


@given(st.integers(2, 40), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_p_value_is_below_5_percent_where_the_interval_excludes_the_null(n: int, seed: int):
    rng = np.random.default_rng(seed)
    control = rng.lognormal(size=n)
    treatment = control * rng.lognormal(-0.2, 0.5, size=n)
    estimate = ratios_of_sums(control, treatment[:, None], counts_of(n, draws=4000))[0]
    if not 0.045 < estimate.p_value < 0.055:  # the ends lie between two draws
        assert estimate.excludes_null == (estimate.p_value < 0.05)
        assert not (n <= 3 and estimate.excludes_null)


@pytest.mark.parametrize(("n", "has_interval"), [(3, False), (4, True)])
def test_an_end_that_lies_beyond_all_draws_is_unknown(n: int, has_interval: bool):
    """95% of three instances would need resamples further out than the furthest there is."""
    rng = np.random.default_rng(14)
    control, treatment = rng.lognormal(size=(2, n))
    found = ratios_of_sums(control, treatment[:, None], counts_of(n, draws=10_000))[0]
    assert np.isfinite(found.low) == has_interval
    assert found.p_value > 0.05


def test_a_ratio_of_medians_equals_a_plain_loop_over_the_same_draws():
    rng = np.random.default_rng(9)
    control, treatment = rng.lognormal(size=15), rng.lognormal(size=15)
    counts = counts_of(15, draws=400)
    values = reference.resampled(reference.ratio_of_medians(control, treatment), counts)
    estimate = ratio_of_medians(control, treatment, counts)
    assert (estimate.low, estimate.high) == pytest.approx(reference.expanded_interval(values, 15))


@pytest.mark.parametrize("method", ["percentile", "BCa"])
def test_intervals_agree_with_scipy_up_to_resampling_noise(method: str):
    rng = np.random.default_rng(4)
    control = rng.lognormal(sigma=1.0, size=120)
    treatment = control * rng.lognormal(mean=-0.3, sigma=0.4, size=120)
    peer = stats.bootstrap(
        (control, treatment),
        lambda c, t, axis: t.sum(axis=axis) / c.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=9000,
        confidence_level=1 - 2 * expanded_tail(120) if method == "percentile" else 0.95,
        method=method,
        rng=np.random.default_rng(5),
    ).confidence_interval
    ours = ratios_of_sums(control, treatment[:, None], counts_of(120, draws=9000))[0]
    ends = (ours.low, ours.high) if method == "percentile" else (ours.bca_low, ours.bca_high)
    assert ends == pytest.approx((peer.low, peer.high), abs=0.01)


def test_any_statistic_of_weights_gives_the_same_as_the_special_case():
    rng = np.random.default_rng(6)
    control, treatment = rng.random(30), rng.random(30)
    counts = counts_of(30)
    general = statistic(
        lambda w: (w @ (treatment - control)) / w.sum(axis=1), counts=counts, null=0.0
    )
    special = mean_differences(control, treatment[:, None], counts)[0]
    assert general.low == pytest.approx(special.low)
    assert general.bca_high == pytest.approx(special.bca_high)
    assert general.p_value == special.p_value


def test_many_arms_at_once_equal_one_arm_at_a_time():
    rng = np.random.default_rng(7)
    control, treatments = rng.random(25) + 0.1, rng.random((25, 6)) + 0.1
    counts = counts_of(25)
    for many in (mean_differences, ratios_of_sums, geometric_mean_ratios):
        together = many(control, treatments, counts)
        alone = [many(control, treatments[:, [i]], counts)[0] for i in range(6)]
        assert [e.low for e in together] == pytest.approx([e.low for e in alone])
        assert [e.bca_high for e in together] == pytest.approx([e.bca_high for e in alone])


def test_the_geometric_mean_of_ratios_is_that():
    control, treatment = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 2.0])
    estimate = geometric_mean_ratios(control, treatment[:, None], counts_of(3))[0]
    assert estimate.value == pytest.approx(stats.gmean(treatment / control))


def test_a_ratio_with_a_zero_in_it_is_unknown_and_not_infinite():
    estimate = geometric_mean_ratios(np.array([1.0, 0.0]), np.array([[1.0], [1.0]]), counts_of(2))[
        0
    ]
    assert np.isnan([estimate.value, estimate.low, estimate.p_value]).all()


def test_one_instance_gives_a_value_without_an_interval():
    estimate = ratios_of_sums(np.array([2.0]), np.array([[1.0]]), counts_of(1))[0]
    assert estimate.value == 0.5
    assert np.isnan([estimate.low, estimate.high, estimate.p_value]).all()
    assert not estimate.excludes_null


def test_no_instance_is_unknown():
    estimate = ratios_of_sums(np.empty(0), np.empty((0, 1)), np.empty((10, 0)))[0]
    assert estimate.n_instances == 0
    assert np.isnan(estimate.value)


def test_identical_pairs_have_a_p_value_of_one():
    same = np.array([1.0, 0.0, 1.0, 1.0])
    estimate = mean_differences(same, same[:, None], counts_of(4))[0]
    assert (estimate.value, estimate.low, estimate.high, estimate.p_value) == (0, 0, 0, 1)


def test_no_p_value_is_smaller_than_the_draws_allow():
    estimate = mean_differences(np.zeros(50), np.ones((50, 1)), counts_of(50, draws=999))[0]
    smallest = reference.expanded_p([1.0] * 999, 50, null=0.0)
    assert estimate.p_value == pytest.approx(smallest)
    assert 1e-3 < smallest < 4e-3


def test_seeds_are_averaged_within_an_instance_however_many_there_are():
    """Five baselines and one treatment: each instance weighs the same."""
    values = np.array([[1.0, 0.0, np.nan], [1.0, np.nan, np.nan], [np.nan] * 3])
    assert seed_means(values) == pytest.approx([0.5, 1.0, np.nan], nan_ok=True)


def test_seed_means_that_agree_are_ties_although_floats_are_not_exact():
    thirds = seed_means(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    other = np.array([1 / 3, 1 - 1 / 3])
    estimate = mean_differences(thirds, other[:, None], counts_of(2))[0]
    assert estimate.p_value == 1


@given(st.integers(8, 30), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_swapping_the_arms_turns_the_effect_around(n: int, seed: int):
    rng = np.random.default_rng(seed)
    control, treatment = rng.random(n) + 0.1, rng.random(n) + 0.1
    counts = counts_of(n, draws=200)
    one = ratios_of_sums(control, treatment[:, None], counts)[0]
    other = ratios_of_sums(treatment, control[:, None], counts)[0]
    assert one.value == pytest.approx(1 / other.value)
    assert one.p_value == other.p_value
    assert one.low <= one.high


@pytest.mark.parametrize("n", [12, 25, 100])
def test_expanded_intervals_cover_the_true_ratio_also_with_few_instances(n: int):
    """The plain percentile interval covers 90% at 12 and 92.7% at 25 (docs/analysis.md)."""
    rng = np.random.default_rng(13)
    truth, covered = 0.8, []
    for _ in range(4):
        instance = rng.lognormal(sigma=0.5, size=(n, 500))
        control, treatment = (instance * rng.lognormal(-0.045, 0.3, (n, 500)) for _ in range(2))
        counts = counts_of(n, draws=1000, seed=int(rng.integers(1000)))
        found = ratios_of_sums(control, truth * treatment, counts)
        covered += [e.low <= truth <= e.high for e in found]
    assert 0.935 <= np.mean(covered) <= 0.965


def test_95_percent_intervals_cover_the_true_ratio_93_to_97_times_in_100():
    """Unequal seeds (three baselines, one treatment), instances of very different length."""
    rng = np.random.default_rng(11)
    n, repeats, truth = 100, 600, 0.8
    counts = counts_of(n, draws=1000)
    instance = rng.lognormal(sigma=0.5, size=(n, repeats))
    control = np.mean([instance * rng.gamma(10, 0.1, size=(n, repeats)) for _ in range(3)], axis=0)
    treatment = truth * instance * rng.gamma(10, 0.1, size=(n, repeats))
    estimates = ratios_of_sums(control, treatment, counts)
    percentile = np.mean([e.low <= truth <= e.high for e in estimates])
    bca = np.mean([e.bca_low <= truth <= e.bca_high for e in estimates])
    assert 0.93 <= percentile <= 0.97
    assert 0.93 <= bca <= 0.97


def test_95_percent_intervals_cover_the_true_difference_in_solve_rate():
    rng = np.random.default_rng(12)
    n, repeats, seeds = 200, 600, 3
    ability = rng.beta(0.6, 0.5, size=(n, repeats))
    true_effect = 0.04
    better = np.clip(ability + true_effect, 0, 1)
    truth = float(np.mean(better - ability))
    control = rng.binomial(seeds, ability) / seeds
    treatment = rng.binomial(seeds, better) / seeds
    estimates = mean_differences(control, treatment, counts_of(n, draws=1000))
    covered = np.mean([e.low <= truth <= e.high for e in estimates])
    assert 0.93 <= covered <= 0.97
