"""Matched contrasts within a grid of deletion arms: one dimension changes, the others stay.

In the deletion study an arm is scope x unit x rate x timing. Comparing all delayed arms with all
immediate ones would mix the other dimensions in; here every delayed arm meets its own immediate
twin, instances are averaged over such pairs, and instances are resampled. Exploratory unless the
analysis plan says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, mean_differences, ratios_of_sums, seed_means
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import Group
from pipeline.arms.deletion import Deletion
from pipeline.spec.arm import ArmSpec

Cell = Mapping[str, str]
"""Dimension to level of one arm."""

DIMENSIONS = ("scope", "unit", "rate", "timing")


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedContrast:
    """One level of a dimension against another, over arms that differ in nothing else."""

    dimension: str
    level: str
    against: str
    n_pairs_of_arms: int
    n_instances: int
    tokens: Estimate
    """Ratio of input tokens."""
    steps: Estimate
    """Ratio of steps."""
    solve: Estimate | None
    """Difference in solve rate; None without grades."""


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
    group: Group, cells: Mapping[str, Cell], draws: Draws
) -> list[MatchedContrast]:
    """Return every pair of levels of every dimension that has matched arms in `group`."""
    present = {name: cell for name, cell in cells.items() if name in group.arms}
    found = []
    for dimension in DIMENSIONS:
        levels = sorted({cell[dimension] for cell in present.values()}, key=_order)
        for against, level in combinations(levels, 2):
            pairs = _matched(present, dimension, level, against)
            if pairs:
                found.append(_contrast(group, dimension, level, against, pairs, draws))
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
    dimension: str,
    level: str,
    against: str,
    pairs: list[tuple[str, str]],
    draws: Draws,
) -> MatchedContrast:
    arms = group.arms
    complete = np.logical_and.reduce([arms[a].complete for pair in pairs for a in pair])
    counts = draws.of(int(complete.sum()))

    def mean(side: int, metric: str) -> FloatArray:
        values: FloatArray = np.mean([arms[p[side]].mean_of(metric) for p in pairs], axis=0)
        return values[complete]

    def ratio(metric: str) -> Estimate:
        return ratios_of_sums(mean(1, metric), mean(0, metric)[:, None], counts)[0]

    solve = None
    graded = np.logical_and.reduce([arms[a].graded for pair in pairs for a in pair])
    if graded.any():
        after, before = (
            np.mean([seed_means(arms[p[side]].resolved) for p in pairs], axis=0)[graded]
            for side in (0, 1)
        )
        solve = mean_differences(before, after[:, None], draws.of(int(graded.sum())))[0]
    return MatchedContrast(
        dimension=dimension,
        level=level,
        against=against,
        n_pairs_of_arms=len(pairs),
        n_instances=int(complete.sum()),
        tokens=ratio("input_tokens"),
        steps=ratio("n_steps"),
        solve=solve,
    )
