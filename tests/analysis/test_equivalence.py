"""Claims of sameness are hard to make, and few data never make one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.bootstrap import ratios_of_sums, resample_counts
from pipeline.analysis.equivalence import ONE_SEED, is_cheaper_at_same_rate, sameness_of_solve_rates
from pipeline.analysis.rate_difference import rate_difference, tango_interval

from . import reference


def counts_of(n: int) -> np.ndarray:
    return resample_counts(n, draws=2000, rng=np.random.default_rng(0))


def test_25_concordant_pairs_leave_13_points_open():
    low, high = tango_interval(0, 0, 25)
    assert (low, high) == pytest.approx((-0.1332, 0.1332), abs=1e-4)


def test_the_founding_data_do_not_print_same():
    """25 issues, the same 15 solved by both arms."""
    outcome = np.array([[1.0]] * 15 + [[0.0]] * 10)
    claim = sameness_of_solve_rates(outcome, outcome, margin=0.05, counts=counts_of(25))
    assert not claim.is_noninferior
    assert not claim.is_equivalent
    assert claim.sentence == (
        "not shown to be as good: the interval reaches past the 5-point margin"
    )


@pytest.mark.parametrize(("n", "enough"), [(72, False), (73, True)])
def test_a_5_point_margin_needs_73_concordant_pairs(n: int, enough: bool):
    same = np.ones((n, 1))
    claim = sameness_of_solve_rates(same, same, margin=0.05, counts=counts_of(n))
    assert claim.is_equivalent is enough


def test_several_seeds_without_differences_fall_back_to_tango():
    """The bootstrap of no differences is [0, 0], which would prove anything."""
    same = np.array([[1.0, 1.0, 0.0]] * 25)
    claim = sameness_of_solve_rates(same, same, margin=0.05, counts=counts_of(25))
    assert claim.method == ONE_SEED
    assert claim.low == pytest.approx(-0.1332, abs=1e-4)


def test_seeds_that_all_agree_claim_what_one_of_them_would():
    one = (
        np.array([[0.0]] * 12 + [[1.0]] * 63),
        np.array([[1.0]] * 12 + [[0.0]] * 5 + [[1.0]] * 58),
    )
    three = tuple(np.repeat(arm, 3, axis=1) for arm in one)
    claims = [
        sameness_of_solve_rates(*arms, margin=0.05, counts=counts_of(75)) for arms in (one, three)
    ]
    assert claims[0] == claims[1]
    assert claims[0].method == "Tango"


def test_several_seeds_that_differ_use_the_bootstrap():
    rng = np.random.default_rng(1)
    control = rng.integers(0, 2, size=(60, 3)).astype(float)
    treatment = rng.integers(0, 2, size=(60, 1)).astype(float)
    claim = sameness_of_solve_rates(control, treatment, margin=0.05, counts=counts_of(60))
    assert claim.method == "bootstrap"
    assert claim.low < claim.difference < claim.high


def test_the_fall_back_uses_the_seed_named_beforehand():
    control = np.array([[1.0, 0.0]] * 5 + [[1.0, 1.0]] * 20)
    treatment = np.ones((25, 2))
    at_0 = sameness_of_solve_rates(control, treatment, margin=0.05, counts=counts_of(25))
    at_1 = sameness_of_solve_rates(
        control, treatment, margin=0.05, counts=counts_of(25), fall_back=(1, 1)
    )
    assert (at_0.difference, at_1.difference) == (0.0, 0.2)


@pytest.mark.parametrize(("b", "c", "n"), [(12, 5, 50), (1, 7, 30), (20, 20, 500), (3, 0, 40)])
def test_tango_holds_every_difference_that_its_score_test_does_not_reject(b: int, c: int, n: int):
    assert tango_interval(b, c, n) == pytest.approx(reference.tango_ends(b, c, n), abs=2e-4)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_tango_is_symmetric_and_holds_the_estimate(b: int, c: int, concordant: int):
    n = b + c + concordant
    if n:
        low, high = tango_interval(b, c, n)
        assert tango_interval(c, b, n) == pytest.approx((-high, -low))
        assert -1 <= low <= (b - c) / n + 1e-9
        assert (b - c) / n - 1e-9 <= high <= 1


def test_tango_covers_the_true_difference_95_times_in_100():
    rng = np.random.default_rng(5)
    p_won, p_lost, n = 0.12, 0.08, 60
    drawn = rng.multinomial(n, [p_won, p_lost, 1 - p_won - p_lost], size=800)
    covered = [
        (ends := tango_interval(int(b), int(c), n))[0] <= p_won - p_lost <= ends[1]
        for b, c, _ in drawn
    ]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_the_printed_difference_is_that_of_the_rates_however_few_instances_differ():
    """54.2% against 66.7% was printed as "+0.0", the difference on one seed."""
    control = np.array([1.0] * 8 + [0.0] * 4)
    treatment = np.array([1.0] * 5 + [0.5, 0.5, 0.5] + [0.0] * 4)
    found = rate_difference(control, treatment, counts_of(12))
    assert found.value == pytest.approx(treatment.mean() - control.mean())
    assert found.method == "Tango"
    assert found.low < found.value < found.high


def test_with_ten_instances_that_differ_the_bootstrap_gives_the_printed_interval():
    rng = np.random.default_rng(3)
    control, treatment = rng.integers(0, 3, size=(2, 60)) / 2
    found = rate_difference(control, treatment, counts_of(60))
    gap = treatment - control
    values = reference.resampled(lambda at: float(np.mean([gap[i] for i in at])), counts_of(60))
    assert found.method == "bootstrap"
    assert (found.low, found.high) == pytest.approx(reference.expanded_interval(values, 60))


@pytest.mark.parametrize("n", [12, 25])
def test_pairs_won_by_a_half_give_an_interval_that_is_never_too_narrow(n: int):
    """Two seeds an arm, few instances that differ: coverage is at least 95%."""
    rng = np.random.default_rng(6)
    chances = rng.choice([0.02, 0.98], size=n)
    better = np.clip(chances + 0.05, 0, 1)
    counts = counts_of(n)
    covered = []
    for _ in range(600):
        control, treatment = (rng.binomial(2, p) / 2 for p in (chances, better))
        found = rate_difference(control, treatment, counts)
        if found.method == "Tango":
            covered.append(found.low <= float((better - chances).mean()) <= found.high)
    assert len(covered) > 400
    assert np.mean(covered) >= 0.94


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="impossible"):
        tango_interval(5, 5, 9)


def test_cheaper_at_the_same_rate_needs_both_parts():
    same = np.ones((100, 1))
    few = np.ones((20, 1))
    spend = np.linspace(1, 2, 100)
    cheaper = ratios_of_sums(spend, (0.7 * spend)[:, None], counts_of(100))[0]
    equal = ratios_of_sums(spend, spend[:, None], counts_of(100))[0]
    shown = sameness_of_solve_rates(same, same, margin=0.05, counts=counts_of(100))
    not_shown = sameness_of_solve_rates(few, few, margin=0.05, counts=counts_of(20))
    assert is_cheaper_at_same_rate(shown, cheaper)
    assert not is_cheaper_at_same_rate(shown, equal)
    assert not is_cheaper_at_same_rate(not_shown, cheaper)
