"""Solve rates over all that a prior knows: plain where all was run, and better elsewhere."""

import numpy as np
import pytest

from pipeline.analysis.prior_regression import N_FOLDS, cross_fitted


def terms(rates: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(rates), rates, rates * (1 - rates)], axis=1)


def slowly(gaps, own, every, folds) -> tuple[float, float]:
    """The same from the definition: normal equations, an instance at a time."""

    def coefficients(kept) -> np.ndarray:
        left, right = np.zeros((3, 3)), np.zeros(3)
        for i in kept:
            left += np.outer(own[i], own[i])
            right += own[i] * gaps[i]
        return np.linalg.solve(left, right)

    places = range(len(gaps))
    fits = [coefficients([j for j in places if folds[j] != folds[i]]) for i in places]
    residuals = [gaps[i] - own[i] @ fits[i] for i in places]
    predicted = [np.mean([one @ fit for fit in fits]) for one in every]
    variance = np.var(residuals, ddof=1) / len(gaps) + np.var(predicted) / len(every)
    return np.mean(residuals) + np.mean(predicted), variance


def drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Priors, and gaps that depend on them."""
    rates = rng.choice([0.05, 0.3, 0.5, 0.8, 0.95], size=n)
    return rates, -0.4 * rates * (1 - rates) + rng.normal(0, 0.05, size=n)


def test_the_estimate_is_that_of_the_definition():
    rng = np.random.default_rng(1)
    rates, gaps = drawn(60, rng)
    ran, folds = slice(0, 40), np.arange(40) % N_FOLDS
    found = cross_fitted(gaps[ran], terms(rates[ran]), terms(rates), folds)
    assert found == pytest.approx(slowly(gaps[ran], terms(rates[ran]), terms(rates), folds))


def test_where_all_known_instances_were_run_it_is_the_plain_difference():
    rng = np.random.default_rng(2)
    rates, gaps = drawn(400, rng)
    own = terms(rates)
    value, variance = cross_fitted(gaps, own, own, np.arange(400) % N_FOLDS)
    assert value == pytest.approx(gaps.mean(), abs=1e-3)
    assert variance == pytest.approx(gaps.var() / 400, rel=0.05)


def test_a_sample_speaks_for_all_without_bias_and_its_interval_covers():
    rng = np.random.default_rng(3)
    truth = -0.4 * np.mean([r * (1 - r) for r in (0.05, 0.3, 0.5, 0.8, 0.95)])
    values, plain, covered = [], [], []
    for _ in range(400):
        rates, gaps = drawn(500, rng)
        value, variance = cross_fitted(
            gaps[:100], terms(rates[:100]), terms(rates), np.arange(100) % N_FOLDS
        )
        values.append(value)
        plain.append(gaps[:100].mean())
        covered.append(abs(value - truth) <= 1.96 * variance**0.5)
    assert np.mean(values) == pytest.approx(truth, abs=3 * np.std(values) / 20)
    assert np.var(values) < 0.85 * np.var(plain)
    assert np.mean(covered) > 0.92
