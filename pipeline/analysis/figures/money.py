"""Cost figures: cost against solve rate, and the cost ratio as cached tokens get dearer."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.cost import PriceSweep
from pipeline.analysis.figures.style import ArmStyle, axes_of, legend_above, new_figure, thousands


def cost_against_solve_rate(
    points: Mapping[str, tuple[float, float]], styles: Mapping[str, ArmStyle], *, currency: str
) -> Figure:
    """Return a scatter of arms.

    Args:
        points: arm to (cost a run, solve rate as a share).
        styles: from `arm_styles`.
        currency: unit of the cost.
    """
    figure = new_figure()
    axes = axes_of(figure)
    for arm, (cost, rate) in points.items():
        style = styles[arm]
        axes.plot(
            [cost], [100 * rate], ls="", marker=style.marker, ms=6, color=style.colour, label=arm
        )
    axes.set_xlabel(f"cost a run, {currency}")
    axes.set_ylabel("solved, %")
    axes.set_xlim(0, 1.12 * max(cost for cost, _ in points.values()) or 1.0)
    axes.margins(y=0.25)
    thousands(axes.xaxis)
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
