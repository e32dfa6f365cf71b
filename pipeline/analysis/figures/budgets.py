"""Arms at the same tokens: solve rate against tokens, what was asked beside what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.figures.style import (
    ArmStyle,
    axes_of,
    legend_above,
    new_figure,
    thousands,
)
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.treatment import ArmTreatment

_OF_RUNS: Mapping[str, Callable[[ArmOutcomes], FloatArray]] = {
    "mean_prompt": lambda arm: arm.metrics["input_tokens"] / arm.metrics["n_calls"],
    "peak": lambda arm: arm.metrics["peak_context_tokens"],
    "removed_tokens": lambda arm: arm.metrics["pruned_tokens"],
    "total_input": lambda arm: arm.metrics["input_tokens"],
}
"""What a budget is of, for arms that have none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPoint:
    """One arm: its mean tokens a run by the budgets' measure, and its solve rate."""

    arm: str
    solve_rate: float
    achieved: float
    requested: float | None
    """None for an arm without a budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPoints:
    """All arms of a group by one measure of tokens."""

    measure: str
    points: Sequence[BudgetPoint]


def budget_points(treatments: Sequence[ArmTreatment], group: Group) -> BudgetPoints | None:
    """Return the graded arms of a group; None where no arm, or two measures, have budgets."""
    asked = {
        t.arm: t.budgets[0]
        for t in treatments
        if t.budgets and (t.model, t.agent) == (group.model, group.agent) and t.arm in group.arms
    }
    measures = {budget.measure for budget in asked.values()}
    if len(measures) != 1:
        return None
    (measure,) = measures
    points = [
        BudgetPoint(
            arm=name,
            solve_rate=float(np.nanmean(arm.resolved)),
            achieved=asked[name].achieved
            if name in asked
            else float(np.nanmean(_OF_RUNS[measure](arm)[arm.done])),
            requested=asked[name].requested if name in asked else None,
        )
        for name, arm in group.arms.items()
        if arm.graded.any()
    ]
    return BudgetPoints(measure=measure, points=points) if points else None


def solve_rate_against_tokens(budgets: BudgetPoints, styles: Mapping[str, ArmStyle]) -> Figure:
    """Return the arms: filled marks where they came to lie, hollow ones where they were asked."""
    figure = new_figure()
    axes = axes_of(figure)
    for point in budgets.points:
        style = styles[point.arm]
        rate = 100 * point.solve_rate
        if point.requested is not None:
            axes.plot([point.requested, point.achieved], [rate] * 2, color=style.colour, lw=0.7)
            axes.plot(
                [point.requested],
                [rate],
                color=style.colour,
                marker=style.marker,
                mfc="white",
                ls="",
            )
        axes.plot(
            [point.achieved], [rate], color=style.colour, marker=style.marker, ls="",
            label=point.arm,
        )  # fmt: skip
    axes.set_xlabel(f"{budgets.measure.replace('_', ' ')}, tokens a run")
    axes.set_ylabel("solved, %")
    axes.margins(y=0.2)
    thousands(axes.xaxis)
    legend_above(axes)
    return figure
