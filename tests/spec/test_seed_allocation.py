"""Seeds where they count: the best whole numbers for a budget, from the prior alone."""

from itertools import product

import pytest

from pipeline.spec.seed_allocation import SUREST, allocated_seeds


def variance(rates: dict[str, float], seeds: dict[str, int]) -> float:
    """Of the mean of seed means, times the number of instances squared."""
    sure = {name: min(max(rate, SUREST), 1 - SUREST) for name, rate in rates.items()}
    return sum(sure[name] * (1 - sure[name]) / seeds[name] for name in rates)


@pytest.mark.parametrize("mean", [1.0, 1.5, 2.0, 2.75, 3.0])
def test_no_other_allocation_of_so_many_seeds_has_a_smaller_variance(mean: float):
    rates = {"a": 0.0, "b": 0.1, "c": 0.5, "d": 0.93}
    found = allocated_seeds(rates, mean=mean, most=4)
    every = (
        dict(zip(rates, n, strict=True))
        for n in product(range(1, 5), repeat=len(rates))
        if sum(n) == round(mean * len(rates))
    )
    assert sum(found.values()) == round(mean * len(rates))
    assert variance(rates, found) == pytest.approx(min(variance(rates, n) for n in every))


def test_an_instance_never_has_less_than_one_seed_nor_more_than_the_sweep():
    rates = {f"i{n}": 0.0 for n in range(9)} | {"open": 0.5}
    found = allocated_seeds(rates, mean=1.2, most=2)
    assert (min(found.values()), max(found.values()), found["open"]) == (1, 2, 2)
    assert set(allocated_seeds(rates, mean=9.0, most=2).values()) == {2}


def test_many_seeds_are_as_neyman_has_them():
    rates = {"a": 0.5, "b": 0.1}
    found = allocated_seeds(rates, mean=400, most=1000)
    assert found["a"] / found["b"] == pytest.approx((0.25 / 0.09) ** 0.5, rel=0.01)
