"""What a number of instances can show: the table that stands before any claim.

Exact for one seed: pairs won and lost are counted out under their multinomial law, and each outcome
is put through the very tests that a report uses, exact McNemar for a difference and Tango's
interval for "not worse". Nothing is approximated: a normal approximation says 20% where 25 pairs
with 5% discordance have a chance of 1.4%.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from scipy.stats import binom

from pipeline.analysis.arrays import BoolArray, FloatArray, IntArray
from pipeline.analysis.rate_difference import Z, tango_score

POWER = 0.8
"""Chance of success that a planned size should have."""

MAX_INSTANCES = 100_000
"""Larger sizes are not looked for."""

_LEFT_OUT = 1e-9
"""Chance of numbers of discordant pairs that are not counted out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRow:
    """What `n_instances` pairs can show when a share `discordance` of them differ."""

    n_instances: int
    discordance: float
    detectable_difference: float
    """Smallest true difference found with 80% power, two-sided 0.05; NaN if there is none."""
    noninferiority_power: float
    """Chance to show non-inferiority when the arms are truly equal."""
    margin: float
    n_for_noninferiority: int | None
    """Instances from which on the power is 80% when the arms are truly equal; None: too many."""


def detectable_difference(n_instances: int, discordance: float) -> float:
    """Return the smallest true difference in rate that exact McNemar finds with 80% power.

    NaN where even a difference as large as the discordance is not found.
    """

    def found(difference: float) -> bool:
        return mcnemar_power(n_instances, discordance, difference=difference) >= POWER

    if not found(discordance):
        return float("nan")
    low, high = 0.0, discordance
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def mcnemar_power(n_instances: int, discordance: float, *, difference: float) -> float:
    """Return the chance that exact McNemar rejects at 5% under a true `difference` in rate."""
    if discordance <= 0:
        return 0.0
    pairs, chance = _discordant_pairs(n_instances, discordance)
    # At p = 1/2 the two-sided p value is twice the smaller tail: at most 0.025 may lie in it.
    fewest = binom.ppf(0.025, pairs, 0.5).astype(np.int64)
    fewest -= binom.cdf(fewest, pairs, 0.5) > 0.025
    won = (1 + difference / discordance) / 2
    return float(chance @ (binom.cdf(fewest, pairs, won) + binom.cdf(fewest, pairs, 1 - won)))


def noninferiority_power(n_instances: int, discordance: float, *, margin: float) -> float:
    """Return the chance that Tango's interval lies above -`margin` when the rates are equal."""
    pairs, chance = _discordant_pairs(n_instances, discordance)

    def shown(won: IntArray) -> BoolArray:
        won_, lost = won.astype(np.float64), (pairs - won).astype(np.float64)
        return np.asarray(tango_score(won_, lost, n_instances, -margin) > Z)

    fewest = _first_true(shown, pairs)
    return float(chance @ binom.sf(fewest - 1, pairs, 0.5))


def _discordant_pairs(n_instances: int, discordance: float) -> tuple[IntArray, FloatArray]:
    """Return the numbers of discordant pairs that can be expected, and their chances."""
    ends = binom.ppf([_LEFT_OUT / 2, 1 - _LEFT_OUT / 2], n_instances, discordance)
    pairs = np.arange(int(ends[0]), int(ends[1]) + 1)
    chance: FloatArray = binom.pmf(pairs, n_instances, discordance)
    return pairs, chance


def _first_true(shown: Callable[[IntArray], BoolArray], most: IntArray) -> IntArray:
    """Return the smallest number in 0 to `most` at which `shown` holds, else `most` + 1.

    What holds at a number holds at every larger one.
    """
    low, high = np.zeros_like(most), most + 1
    while (low < high).any():
        middle = (low + high) // 2
        holds = shown(np.minimum(middle, most)) & (middle <= most)
        low, high = (
            np.where(holds, low, np.minimum(middle + 1, high)),
            np.where(holds, middle, high),
        )
    return high


@cache
def n_for_noninferiority(discordance: float, *, margin: float) -> int | None:
    """Return the size from which on the claim has 80% power; None above `MAX_INSTANCES`.

    Power rises in saw teeth, since counts are whole. A tooth is at most 3 / margin instances long
    where the power is near 80%, so no size beyond that falls short again.
    """

    def falls_short(n_instances: int) -> bool:
        return noninferiority_power(n_instances, discordance, margin=margin) < POWER

    low, high = 0, 1
    while falls_short(high):
        low, high = high, 2 * high
        if high > MAX_INSTANCES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if falls_short(middle) else (low, middle)
    return 1 + max(n for n in range(low, high + ceil(3 / margin)) if n == low or falls_short(n))


def power_table(
    sizes: Sequence[int], *, discordances: Sequence[float], margin: float
) -> list[PowerRow]:
    """Return one row for each size and discordance."""
    return [
        PowerRow(
            n_instances=n,
            discordance=d,
            detectable_difference=detectable_difference(n, d),
            noninferiority_power=noninferiority_power(n, d, margin=margin),
            margin=margin,
            n_for_noninferiority=n_for_noninferiority(d, margin=margin),
        )
        for n in sizes
        for d in discordances
    ]
