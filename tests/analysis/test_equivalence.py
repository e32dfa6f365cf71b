"""Claims of sameness are hard to make, and few data never make one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.bootstrap import ratios_of_sums, resample_counts
from pipeline.analysis.equivalence import (
    is_cheaper_at_same_rate,
    sameness_of_solve_rates,
    tango_interval,
)


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
    same = np.ones((25, 3))
    claim = sameness_of_solve_rates(same, same, margin=0.05, counts=counts_of(25))
    assert claim.method == "Tango"
    assert claim.low == pytest.approx(-0.1332, abs=1e-4)


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


def likelihood_score(b: int, c: int, n: int, delta: float) -> float:
    """Tango's statistic from its definition: the constrained likelihood is maximised on a grid."""
    lowest = max(0.0, -delta)
    grid = np.linspace(lowest + 1e-9, (1 - delta) / 2 - 1e-9, 200_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_likelihood = (
            (b * np.log(grid + delta) if b else 0)
            + (c * np.log(grid) if c else 0)
            + ((n - b - c) * np.log(1 - 2 * grid - delta) if n - b - c else 0)
        )
    share = grid[np.nanargmax(np.where(np.isfinite(log_likelihood), log_likelihood, -np.inf))]
    return float((b - c - n * delta) / np.sqrt(n * (2 * share + delta * (1 - delta))))


@pytest.mark.parametrize(("b", "c", "n"), [(12, 5, 50), (1, 7, 30), (20, 20, 500), (3, 0, 40)])
def test_tango_inverts_the_score_test_of_the_constrained_likelihood(b: int, c: int, n: int):
    low, high = tango_interval(b, c, n)
    assert likelihood_score(b, c, n, low) == pytest.approx(1.96, abs=5e-3)
    assert likelihood_score(b, c, n, high) == pytest.approx(-1.96, abs=5e-3)


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
