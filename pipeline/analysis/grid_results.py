"""A deletion grid's results, configuration by configuration: scope and amount down, timing across.

How each dimension acts, over arms that differ in it alone, is `grid`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.analysis.contrasts import Contrast
from pipeline.analysis.grid import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRow:
    """The configurations that delete the same share of the same content."""

    scope: str
    amount: str
    by_timing: Mapping[str, Contrast]
    """`delayed` and `immediate`, as far as there are such arms."""


def grid_results(contrasts: Sequence[Contrast], cells: Mapping[str, Cell]) -> list[GridRow]:
    """Return the grid's arms in the order of the contrasts; empty where there is no second one."""
    rows: dict[tuple[str, str], dict[str, Contrast]] = {}
    for contrast in contrasts:
        cell = cells.get(contrast.arm)
        if cell is not None:
            amount = f"{cell['rate']} of {cell['unit']}s"
            rows.setdefault((cell["scope"], amount), {})[cell["timing"]] = contrast
    if sum(map(len, rows.values())) < 2:
        return []
    return [
        GridRow(scope=scope, amount=amount, by_timing=found)
        for (scope, amount), found in rows.items()
    ]


def cheaper_sentences(contrasts: Sequence[Contrast], cells: Mapping[str, Cell]) -> list[str]:
    """Return how many of the grid's configurations cost less, a sentence for each price list.

    One deletion arm is no grid.
    """
    grid = [contrast for contrast in contrasts if contrast.arm in cells and contrast.costs]
    sentences = []
    for place, first in enumerate(grid[0].costs if len(grid) > 1 else ()):
        ratios = [contrast.costs[place].ratio for contrast in grid]
        cheaper = sum(ratio.value < 1 for ratio in ratios)
        shown = sum(ratio.high < 1 for ratio in ratios)
        kind = "caching" if first.is_caching else "flat"
        sentences.append(
            f"{cheaper} of {len(grid)} configurations were cheaper under {kind} prices "
            f"({first.prices}), {shown} of them with all of the interval below 1."
        )
    return sentences
