"""Matched contrasts within a grid of deletion arms: one dimension changes, the others stay.

In the deletion study an arm is scope x unit x rate x timing. Comparing all delayed arms with all
immediate ones would mix the other dimensions in; here every delayed arm meets its own immediate
twin. Each pair of twins stands alone, so that one can say "fewer tokens in 17 of 18 pairs"; for the
interval over all of them, instances are averaged over the pairs and resampled. Exploratory unless
the analysis plan says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipeline.analysis.arrays import BoolArray, FloatArray
from pipeline.analysis.bootstrap import Estimate, mean_differences, ratios_of_sums, seed_means
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import Group
from pipeline.analysis.rate_difference import TIE, RateDifference, rate_difference
from pipeline.arms.deletion import Deletion
from pipeline.spec.arm import ArmSpec

Cell = Mapping[str, str]
"""Dimension to level of one arm."""

DIMENSIONS = ("scope", "unit", "rate", "timing")

Outcomes = Mapping[str, Mapping[str, FloatArray]]
"""Outcome to each arm's seed means by instance, NaN where unknown; all are compared as ratios."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedPair:
    """Two arms that differ in one dimension only."""

    arm: str
    against: str
    n_instances: int
    ratios: Mapping[str, Estimate]
    """Outcome to the ratio of sums, on the instances that both arms know."""
    solve: RateDifference | None
    """None without grades."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedContrast:
    """One level of a dimension against another, over arms that differ in nothing else."""

    dimension: str
    level: str
    against: str
    pairs: tuple[MatchedPair, ...]
    n_instances: int
    """Complete in every arm of every pair: the ones that the figures over all pairs are from."""
    ratios: Mapping[str, Estimate]
    """Outcome to the ratio of sums over all pairs."""
    solve: Estimate | None
    """Difference in solve rate over all pairs; None without grades."""

    def n_lower(self, outcome: str) -> int:
        """Return the pairs in which the level has less of an outcome (or solves less)."""
        return sum(gap < -TIE for gap in self._gaps(outcome))

    def n_higher(self, outcome: str) -> int:
        """Return the pairs in which the level has more of an outcome (or solves more)."""
        return sum(gap > TIE for gap in self._gaps(outcome))

    def _gaps(self, outcome: str) -> list[float]:
        if outcome == SOLVE:
            return [pair.solve.value for pair in self.pairs if pair.solve is not None]
        return [pair.ratios[outcome].value - 1 for pair in self.pairs]


SOLVE = "solve"
"""The outcome that is compared as a difference."""


def grid_cells(arms: Mapping[str, ArmSpec]) -> dict[str, Cell]:
    """Return the place in the grid of every deletion arm."""
    cells: dict[str, Cell] = {}
    for name, arm in arms.items():
        policy = arm.policy
        if isinstance(policy, Deletion):
            at_once = {
                "reasoning": policy.reasoning_delay == 0,
                "output": policy.output_delay == 0,
                "both": policy.reasoning_delay == policy.output_delay == 0,
            }[policy.scope]
            cells[name] = {
                "scope": policy.scope,
                "unit": policy.unit,
                "rate": f"{100 * policy.rate:g}%",
                "timing": "immediate" if at_once else "delayed",
            }
    return cells


def matched_contrasts(
    group: Group, cells: Mapping[str, Cell], draws: Draws, outcomes: Outcomes
) -> list[MatchedContrast]:
    """Return every pair of levels of every dimension that has matched arms in `group`."""
    present = {name: cell for name, cell in cells.items() if name in group.arms}
    found = []
    for dimension in DIMENSIONS:
        levels = sorted({cell[dimension] for cell in present.values()}, key=_order)
        for against, level in combinations(levels, 2):
            pairs = _matched(present, dimension, level, against)
            if pairs:
                found.append(_contrast(group, (dimension, level, against), pairs, draws, outcomes))
    return found


def _order(level: str) -> tuple[float, str]:
    return (float(level[:-1]), "") if level.endswith("%") else (0.0, level)


def _matched(
    cells: Mapping[str, Cell], dimension: str, level: str, against: str
) -> list[tuple[str, str]]:
    """Return (arm at `level`, arm at `against`) that agree in every other dimension."""
    rest = {
        (cell[dimension], *(cell[d] for d in DIMENSIONS if d != dimension)): name
        for name, cell in cells.items()
    }
    return [
        (name, rest[(against, *key[1:])])
        for key, name in rest.items()
        if key[0] == level and (against, *key[1:]) in rest
    ]


def _contrast(
    group: Group,
    place: tuple[str, str, str],
    pairs: Sequence[tuple[str, str]],
    draws: Draws,
    outcomes: Outcomes,
) -> MatchedContrast:
    complete, graded = (
        np.logical_and.reduce([known for pair in pairs for known in _known(group, pair, what)])
        for what in ("complete", "graded")
    )

    def mean(side: int, values: Mapping[str, FloatArray]) -> FloatArray:
        means: FloatArray = np.mean([values[pair[side]] for pair in pairs], axis=0)
        return means

    solve = None
    if graded.any():
        rates = {name: seed_means(group.arms[name].resolved) for pair in pairs for name in pair}
        after, before = (mean(side, rates)[graded] for side in (0, 1))
        solve = mean_differences(before, after[:, None], draws.of(int(graded.sum())))[0]
    dimension, level, against = place
    return MatchedContrast(
        dimension=dimension,
        level=level,
        against=against,
        pairs=tuple(_pair(group, pair, draws, outcomes) for pair in pairs),
        n_instances=int(complete.sum()),
        ratios={
            outcome: _ratio(mean(1, values), mean(0, values), complete, draws)
            for outcome, values in outcomes.items()
        },
        solve=solve,
    )


def _pair(group: Group, pair: tuple[str, str], draws: Draws, outcomes: Outcomes) -> MatchedPair:
    arm, against = pair
    complete, graded = (
        np.logical_and(*_known(group, pair, what)) for what in ("complete", "graded")
    )
    solve = None
    if graded.any():
        before, after = (seed_means(group.arms[name].resolved[graded]) for name in (against, arm))
        solve = rate_difference(before, after, draws.of(int(graded.sum())))
    return MatchedPair(
        arm=arm,
        against=against,
        n_instances=int(complete.sum()),
        ratios={
            outcome: _ratio(values[against], values[arm], complete, draws)
            for outcome, values in outcomes.items()
        },
        solve=solve,
    )


def _known(group: Group, pair: tuple[str, str], what: str) -> list[BoolArray]:
    return [getattr(group.arms[name], what) for name in pair]


def _ratio(before: FloatArray, after: FloatArray, complete: BoolArray, draws: Draws) -> Estimate:
    known = complete & ~np.isnan(before) & ~np.isnan(after)
    counts = draws.of(int(known.sum()))
    return ratios_of_sums(before[known], after[known][:, None], counts)[0]
