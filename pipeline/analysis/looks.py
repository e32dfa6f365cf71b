"""Planned looks: when a sweep may stop early, and what may be said where it did.

Looking five times at 5% each finds something in 14% of sweeps without an effect. A spending
function says beforehand how much of the error each look may use: O'Brien-Fleming's almost none of
it early, Pocock's nearly the same at every look. Boundaries are those of a Brownian motion watched
at the looks, by numerical integration. At a stop an ordinary interval is too good; `adjusted`
orders outcomes by the look at which they stop, and inverts that.

Sources: Lan and DeMets (1983), Biometrika 70, for spending; Armitage, McPherson and Rowe (1969),
JRSS A 132, for the integration; Jennison and Turnbull, Group Sequential Methods (2000), section
8.4, for the stage-wise ordering.

Not here: which looks are planned (`spec.analysis`), which instances are in (`decisions`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import e, log, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pipeline.analysis.arrays import FloatArray
from pipeline.spec.analysis import Spending

LEVEL = 0.025
"""One-sided error of each claim over all looks together."""

_FAR = 8.0
"""Standard deviations beyond which nothing happens; a boundary there is never crossed."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)


def spent(spending: Spending, fraction: float, *, level: float = LEVEL) -> float:
    """Return how much of `level` may be used up by the time of `fraction` of the information."""
    if spending == "pocock":
        return level * log(1 + (e - 1) * fraction)
    return float(2 * ndtr(ndtri(level / 2) / sqrt(fraction)))


def boundaries(
    fractions: Sequence[float], *, spending: Spending, level: float = LEVEL
) -> list[float]:
    """Return the z value that a claim needs at each look, one-sided.

    Args:
        fractions: information at each look over that of the whole sweep, increasing, at most 1.
        spending: the spending function.
        level: one-sided error over all looks.

    Raises:
        ValueError: fractions that do not increase, or lie outside (0, 1].
    """
    if list(fractions) != sorted(set(fractions)) or not 0 < fractions[0] <= fractions[-1] <= 1:
        raise ValueError(f"looks must increase within (0, 1], got {list(fractions)}")
    found: list[float] = []
    walk = _Walk(drift=0.0)
    before = 0.0
    for fraction in fractions:
        now = spent(spending, fraction, level=level)
        found.append(walk.z_exceeded_with(now - before, fraction))
        walk.watched(fraction, low=-_FAR, high=found[-1])
        before = now
    return found


def power(fractions: Sequence[float], limits: Sequence[float], *, drift: float) -> float:
    """Return the chance that a claim is made at one of the looks.

    Args:
        fractions: information at each look over that of the whole sweep.
        limits: z value that the claim needs at each look.
        drift: mean of the claim's z value with all of the information.
    """
    walk, found = _Walk(drift=drift), 0.0
    for fraction, limit in zip(fractions, limits, strict=True):
        found += walk.chance_above(limit, fraction)
        walk.watched(fraction, low=-_FAR, high=limit)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjusted:
    """An effect where a sweep stopped by a rule: median-unbiased, with a 95% interval."""

    value: float
    low: float
    high: float


def adjusted(
    fractions: Sequence[float],
    *,
    low: Sequence[float],
    high: Sequence[float],
    z: float,
    standard_error: float,
) -> Adjusted:
    """Return the effect seen at a stop, corrected for having looked.

    Args:
        fractions: of the looks that were taken, the one of the stop last.
        low: z values at or below which the earlier looks would have stopped, one fewer.
        high: likewise, at or above.
        z: of the effect (against 0) at the stop.
        standard_error: of the effect at the stop.
    """
    # At a look with information t, z has mean drift * sqrt(t).
    scale = sqrt(fractions[-1]) * standard_error

    def chance_of_more(drift: float) -> float:
        walk = _Walk(drift=drift)
        above = 0.0
        for fraction, lowest, highest in zip(fractions[:-1], low, high, strict=True):
            above += walk.chance_above(highest, fraction)
            walk.watched(fraction, low=lowest, high=highest)
        return above + walk.chance_above(z, fractions[-1])

    def drift_with(chance: float) -> float:
        centre = z / sqrt(fractions[-1])
        reach = _FAR / sqrt(fractions[0])
        return _root(lambda d: chance_of_more(d) - chance, centre - reach, centre + reach)

    value, lowest, highest = (drift_with(chance) for chance in (0.5, LEVEL, 1 - LEVEL))
    return Adjusted(value=value * scale, low=lowest * scale, high=highest * scale)


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(of, low, high, xtol=1e-6))


class _Walk:
    """A Brownian motion that has not stopped yet: its density at the last look."""

    def __init__(self, *, drift: float) -> None:
        self._drift = drift
        self._at = 0.0
        self._places = np.zeros(1)
        self._masses = np.ones(1)

    def chance_above(self, z: float, fraction: float) -> float:
        """Return the chance to reach the look at `fraction` and to have at least `z` there."""
        step = fraction - self._at
        start = self._places + self._drift * step
        return float(self._masses @ ndtr((start - z * sqrt(fraction)) / sqrt(step)))

    def z_exceeded_with(self, chance: float, fraction: float) -> float:
        """Return the z value that is reached at `fraction` with `chance`."""
        if chance <= self.chance_above(_FAR, fraction):
            return _FAR
        return _root(lambda z: self.chance_above(z, fraction) - chance, -_FAR, _FAR)

    def watched(self, fraction: float, *, low: float, high: float) -> None:
        """Go on to the look at `fraction`, where it stops outside of the z values given."""
        step = fraction - self._at
        middle, root = self._drift * fraction, sqrt(fraction)
        ends = [
            float(np.clip(z * root, middle - _FAR * root, middle + _FAR * root))
            for z in (low, high)
        ]
        half = (ends[1] - ends[0]) / 2
        places: FloatArray = ends[0] + half * (1 + _NODES)
        gaps = places[:, None] - (self._places + self._drift * step)[None, :]
        density = np.exp(-(gaps**2) / (2 * step)) / sqrt(2 * np.pi * step)
        self._masses = half * _WEIGHTS * (density @ self._masses)
        self._places, self._at = places, fraction
