"""The forest plot: every arm's effect with its interval, the margin drawn where there is one."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.equivalence import SamenessClaim
from pipeline.analysis.figures.style import COLUMN_IN, ArmStyle, axes_of, new_figure


def forest(
    solve: Mapping[str, SamenessClaim],
    tokens: Mapping[str, Estimate],
    styles: Mapping[str, ArmStyle],
    *,
    margin: float,
) -> Figure:
    """Return two panels: solve rate in points with the margin, and the ratio of input tokens.

    Args:
        solve: arm to difference in solve rate; empty without grades.
        tokens: arm to ratio of input tokens.
        styles: from `arm_styles`.
        margin: as a share.
    """
    arms = list(tokens)
    panels = 2 if solve else 1
    figure = new_figure(width_in=COLUMN_IN * 2, height_in=0.9 + 0.28 * len(arms))
    places = range(len(arms))
    if solve:
        left = axes_of(figure, (1, 2, 1))
        points = {arm: _points(solve[arm]) for arm in arms if arm in solve}
        _panel(left, points, arms, styles)
        left.axvline(0, color="black", lw=0.6)
        left.axvline(-100 * margin, color="black", lw=0.8, ls=":")
        left.set_xlabel(f"solve rate, points against the reference (dotted: -{100 * margin:g})")
        left.set_yticks(list(places), arms)
    right = axes_of(figure, (1, panels, panels))
    _panel(right, {arm: (e.value, e.low, e.high) for arm, e in tokens.items()}, arms, styles)
    right.axvline(1, color="black", lw=0.6)
    right.set_xlabel("input tokens, ratio to the reference")
    right.set_yticks(list(places), [] if solve else arms)
    return figure


def _points(claim: SamenessClaim) -> tuple[float, float, float]:
    return 100 * claim.difference, 100 * claim.low, 100 * claim.high


def _panel(
    axes: object,
    effects: Mapping[str, tuple[float, float, float]],
    arms: list[str],
    styles: Mapping[str, ArmStyle],
) -> None:
    for place, arm in enumerate(arms):
        if arm not in effects:
            continue
        value, low, high = effects[arm]
        style = styles[arm]
        axes.plot([low, high], [place, place], color=style.colour, lw=1.4)  # type: ignore[attr-defined]
        axes.plot([value], [place], marker=style.marker, color=style.colour, ms=5)  # type: ignore[attr-defined]
    axes.set_ylim(len(arms) - 0.5, -0.5)  # type: ignore[attr-defined]
