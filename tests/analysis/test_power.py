"""Power is counted out under the tests that a report uses, not approximated."""

import numpy as np
import pytest

from pipeline.analysis.power import (
    detectable_difference,
    mcnemar_power,
    n_for_noninferiority,
    noninferiority_power,
    power_table,
)

from . import reference


@pytest.mark.parametrize(("n", "discordance"), [(12, 0.3), (25, 0.05), (40, 0.2)])
def test_power_for_not_worse_is_the_chance_of_the_outcomes_whose_interval_says_so(
    n: int, discordance: float
):
    expected = sum(
        chance
        for chance, won, lost in reference.outcomes(n, discordance, 0.0)
        if reference.tango_statistic(won, lost, n, -0.1) > reference.Z
    )
    assert noninferiority_power(n, discordance, margin=0.1) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "discordance", "difference"), [(25, 0.4, 0.3), (60, 0.2, 0.0)])
def test_power_for_a_difference_is_the_chance_of_the_outcomes_that_mcnemar_rejects(
    n: int, discordance: float, difference: float
):
    expected = sum(
        chance
        for chance, won, lost in reference.outcomes(n, discordance, difference)
        if reference.mcnemar_p(won, lost) <= 0.05
    )
    found = mcnemar_power(n, discordance, difference=difference)
    assert found == pytest.approx(expected, abs=1e-6)


def test_25_instances_with_5_percent_discordance_show_not_worse_in_one_sweep_of_70():
    assert noninferiority_power(25, 0.05, margin=0.05) == pytest.approx(0.0136, abs=1e-4)


def test_the_size_for_80_percent_power_is_where_no_larger_one_falls_short():
    size = n_for_noninferiority(0.05, margin=0.05)
    assert size == 205  # a normal approximation says 157
    powers = [noninferiority_power(n, 0.05, margin=0.05) for n in range(size - 1, size + 200)]
    assert powers[0] < 0.8 <= min(powers[1:])


def test_without_discordance_the_size_is_that_of_concordant_pairs():
    assert n_for_noninferiority(0.0, margin=0.05) == 73


def test_a_size_that_nobody_can_run_is_none():
    assert n_for_noninferiority(0.2, margin=0.001) is None


def test_the_detectable_difference_is_just_found_with_80_percent_power():
    found = detectable_difference(500, 0.1)
    assert mcnemar_power(500, 0.1, difference=found) == pytest.approx(0.8, abs=1e-6)


def test_more_instances_detect_smaller_differences():
    found = [detectable_difference(n, 0.1) for n in (100, 500, 2000)]
    assert found[0] > found[1] > found[2]


def test_25_instances_detect_nothing_at_ten_percent_discordance():
    assert np.isnan(detectable_difference(25, 0.1))


def test_the_power_table_has_a_row_for_each_size_and_discordance():
    rows = power_table([25, 500], discordances=[0.0, 0.1], margin=0.05)
    assert [(r.n_instances, r.discordance) for r in rows] == [
        (25, 0.0), (25, 0.1), (500, 0.0), (500, 0.1),
    ]  # fmt: skip
    assert rows[0].noninferiority_power == 0.0
    assert rows[2].noninferiority_power == 1.0
