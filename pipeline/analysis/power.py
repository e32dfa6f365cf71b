"""What a number of instances can show: the table that stands before any claim.

Normal approximations for paired proportions. They are planning figures and are labelled so; the
intervals of a report come from the data.

Sources: Connor (1987), Biometrics 43, for McNemar's sample size; Nam (1997), Biometrics 53, for
non-inferiority of paired proportions, with the variance at equal rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from scipy.special import ndtr, ndtri

_Z_ALPHA = float(ndtri(0.975))
_Z_POWER = float(ndtri(0.8))


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
    n_for_noninferiority: int
    """Instances for 80% power at the margin when the arms are truly equal."""


def detectable_difference(n_instances: int, discordance: float) -> float:
    """Return the smallest true difference in rate that `n_instances` pairs find, power 80%.

    NaN where even a difference as large as the discordance is not found.
    """

    def found(difference: float) -> bool:
        spread = _Z_ALPHA * sqrt(discordance)
        spread += _Z_POWER * sqrt(max(discordance - difference**2, 0.0))
        return difference * sqrt(n_instances) >= spread

    if not found(discordance):
        return float("nan")
    low, high = 0.0, discordance
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def noninferiority_power(n_instances: int, discordance: float, *, margin: float) -> float:
    """Return the chance to show non-inferiority at `margin` when the rates are truly equal."""
    if discordance <= 0:
        # Concordant pairs alone carry the claim once z^2 / (n + z^2) is under the margin.
        return float(_Z_ALPHA**2 / (n_instances + _Z_ALPHA**2) < margin)
    return float(ndtr(margin * sqrt(n_instances / discordance) - _Z_ALPHA))


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
            n_for_noninferiority=ceil(d * ((_Z_ALPHA + _Z_POWER) / margin) ** 2),
        )
        for n in sizes
        for d in discordances
    ]
