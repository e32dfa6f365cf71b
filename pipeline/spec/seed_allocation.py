"""How many seeds each instance gets where a prior says which outcomes vary (Neyman allocation).

The standard deviation of a seed's outcome at solve rate p is sqrt(p (1 - p)): an instance that is
always or never solved says the same with each seed. Fixed at launch, from the prior alone, so that
the mean of the instances' seed means (weight 1 / (instances x its seeds) a run) stays unbiased.

Source: Neyman (1934), JRSS 97, in whole numbers by marginal gains.
"""

import heapq
from collections.abc import Mapping

SUREST = 0.05
"""Rates nearer to 0 or 1 than this count as this: no prior is surer."""


def allocated_seeds(rates: Mapping[str, float], *, mean: float, most: int) -> dict[str, int]:
    """Return how many seeds each instance gets: at least 1, at most `most`, about `mean` each.

    Args:
        rates: instance to its expected solve rate.
        mean: seeds an instance, on average.
        most: seeds that the sweep has.
    """
    seeds = dict.fromkeys(rates, 1)
    n_left = round(mean * len(rates)) - len(rates)
    gains = [(-_variance(rate) / 2, name) for name, rate in rates.items() if most > 1]
    heapq.heapify(gains)
    while n_left > 0 and gains:
        _, name = heapq.heappop(gains)
        seeds[name] += 1
        n_left -= 1
        if seeds[name] < most:
            # One seed more takes the variance of a mean from v / n to v / (n + 1).
            gain = _variance(rates[name]) / (seeds[name] * (seeds[name] + 1))
            heapq.heappush(gains, (-gain, name))
    return seeds


def _variance(rate: float) -> float:
    sure = min(max(rate, SUREST), 1 - SUREST)
    return sure * (1 - sure)
