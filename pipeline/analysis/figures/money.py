"""Cost figures: cost against solve rate, and the cost ratio as cached tokens get dearer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.cost import PriceSweep
from pipeline.analysis.figures.style import (
    COLUMN_IN,
    ArmStyle,
    axes_of,
    legend_above,
    new_figure,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """An arm's effects against the reference, each with its interval."""

    cost: tuple[float, float, float]
    """Ratio, lower and upper end."""
    solve_points: tuple[float, float, float]


def cost_against_solve_rate(
    panels: Mapping[str, Mapping[str, Effects]], styles: Mapping[str, ArmStyle], *, reference: str
) -> Figure:
    """Return arms by cost and solve rate against the reference, one panel a price list.

    Intervals are of the paired comparison: those of the arms' own means would mostly show that
    tasks differ.

    Args:
        panels: price list to arm to effects.
        styles: from `arm_styles`.
        reference: the arm in the cross of both lines.
    """
    figure = new_figure(width_in=COLUMN_IN * min(len(panels), 2))
    for number, (prices, arms) in enumerate(panels.items(), start=1):
        axes = axes_of(figure, (1, len(panels), number))
        axes.axvline(1, color="black", lw=0.6)
        axes.axhline(0, color="black", lw=0.6)
        for arm, effects in arms.items():
            style = styles[arm]
            (cost, *cost_ends), (rate, *rate_ends) = effects.cost, effects.solve_points
            axes.plot(cost_ends, [rate, rate], color=style.colour, lw=1.0)
            axes.plot([cost, cost], rate_ends, color=style.colour, lw=1.0)
            axes.plot(
                [cost], [rate], ls="", marker=style.marker, ms=6, color=style.colour, label=arm
            )
        axes.set_xlabel(f"cost, ratio to {reference} ({prices} prices)")
        axes.set_ylabel(f"solve rate, points against {reference}" if number == 1 else "")
        if number == 1:
            legend_above(axes)
    return figure


def cost_against_price_ratio(
    sweeps: Sequence[PriceSweep], styles: Mapping[str, ArmStyle]
) -> Figure:
    """Return each arm's cost ratio over the price ratio, with intervals and break-even points."""
    figure = new_figure()
    axes = axes_of(figure)
    for sweep in sweeps:
        style = styles[sweep.arm]
        values = np.array([e.value for e in sweep.costs])
        if sweep.view == "spliced":
            axes.plot(sweep.ratios, values, color=style.colour, ls=":", lw=0.9)
            continue
        low = np.array([e.low for e in sweep.costs])
        high = np.array([e.high for e in sweep.costs])
        axes.fill_between(sweep.ratios, low, high, color=style.colour, alpha=0.12, lw=0)
        axes.plot(
            sweep.ratios, values, color=style.colour, ls=style.line, marker=style.marker, ms=3,
            label=sweep.arm,
        )  # fmt: skip
        if sweep.break_even is not None and sweep.break_even >= min(sweep.ratios):
            axes.plot(
                [sweep.break_even], [1], marker="|", ms=9, mew=1.4, color=style.colour, zorder=5
            )
    axes.axhline(1, color="black", lw=0.6)
    axes.set_xscale("log")
    ticks = sweeps[0].ratios if sweeps else (0.1, 1.0)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("price of a cached token over an uncached one")
    axes.set_ylabel("cost, ratio to the reference")
    legend_above(axes)
    return figure
