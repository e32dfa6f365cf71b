"""Planned looks: published boundaries, error rates over all looks, and intervals at a stop."""

import numpy as np
import pytest
from scipy import stats

from pipeline.analysis.looks import adjusted, boundaries, spent
from pipeline.spec.analysis import Spending

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


@pytest.mark.parametrize(
    ("spending", "fractions", "published"),
    [
        # Lan and DeMets's spending functions at one-sided 0.025 (two-sided 0.05).
        ("obrien_fleming", FIFTHS, (4.877, 3.357, 2.680, 2.290, 2.031)),
        ("obrien_fleming", (0.5, 1.0), (2.963, 1.969)),
        ("obrien_fleming", (1 / 3, 2 / 3, 1.0), (3.710, 2.511, 1.993)),
        ("obrien_fleming", (0.25, 0.5, 0.75, 1.0), (4.333, 2.963, 2.359, 2.014)),
        ("pocock", FIFTHS, (2.438, 2.427, 2.410, 2.397, 2.386)),
        ("pocock", (0.5, 1.0), (2.157, 2.201)),
    ],
)
def test_boundaries_are_the_published_ones(
    spending: Spending, fractions: tuple[float, ...], published: tuple[float, ...]
):
    assert boundaries(fractions, spending=spending) == pytest.approx(published, abs=1.5e-3)


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_one_look_at_the_end_needs_what_an_ordinary_test_needs(spending: Spending):
    assert boundaries([1.0], spending=spending) == pytest.approx([stats.norm.ppf(0.975)])
    assert spent(spending, 1.0) == pytest.approx(0.025)


@pytest.mark.parametrize("looks", [(0.5, 0.5), (0.6, 0.3), (0.0, 1.0), (0.5, 1.2)])
def test_looks_that_do_not_lead_on_are_refused(looks: tuple[float, ...]):
    with pytest.raises(ValueError, match="increase"):
        boundaries(looks, spending="pocock")


def walks(fractions: tuple[float, ...], drift: float, n: int, seed: int) -> np.ndarray:
    """The z values of n sweeps at each look, step by step."""
    rng = np.random.default_rng(seed)
    times = np.array(fractions)
    steps = np.diff(times, prepend=0.0)
    moves = rng.normal(drift * steps, np.sqrt(steps), size=(n, len(steps)))
    return np.cumsum(moves, axis=1) / np.sqrt(times)


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
@pytest.mark.parametrize("n_looks", [2, 3, 5, 8])
def test_all_looks_together_err_as_often_as_announced(n_looks: int, spending: Spending):
    fractions = tuple(k / n_looks for k in range(1, n_looks + 1))
    limits = np.array(boundaries(fractions, spending=spending))
    crossed = (walks(fractions, 0.0, 200_000, seed=n_looks) >= limits).any(axis=1)
    assert crossed.mean() == pytest.approx(0.025, abs=0.0015)


def test_without_looks_taken_the_adjusted_interval_is_the_ordinary_one():
    found = adjusted([1.0], low=[], high=[], z=1.3, standard_error=0.02)
    ends = (found.value, found.low, found.high)
    assert ends == pytest.approx((0.026, 0.026 - 1.96 * 0.02, 0.026 + 1.96 * 0.02), abs=1e-4)


def test_an_effect_that_stopped_a_sweep_early_is_taken_back_a_little():
    limits = boundaries(FIFTHS, spending="pocock")
    found = adjusted(FIFTHS[:2], low=[-limits[0]], high=[limits[0]], z=2.6, standard_error=0.02)
    assert found.value < 2.6 * 0.02
    assert found.low < found.value < found.high


@pytest.mark.parametrize("drift", [0.0, 2.0, 3.5])
def test_adjusted_intervals_hold_the_truth_and_the_estimate_is_right_in_the_median(drift: float):
    """Three looks, stops on both sides; an ordinary interval at the stop holds it less often."""
    fractions = (1 / 3, 2 / 3, 1.0)
    limits = boundaries(fractions, spending="pocock")
    held, below, n = 0, 0, 400
    for z in walks(fractions, drift, n, seed=int(10 * drift)):
        at = next((k for k in range(2) if abs(z[k]) >= limits[k]), 2)
        found = adjusted(
            fractions[: at + 1],
            low=[-limit for limit in limits[:at]],
            high=limits[:at],
            z=float(z[at]),
            standard_error=1 / np.sqrt(fractions[at]),
        )
        held += found.low <= drift <= found.high
        below += found.value <= drift
    assert held / n == pytest.approx(0.95, abs=0.03)
    assert below / n == pytest.approx(0.5, abs=0.07)
