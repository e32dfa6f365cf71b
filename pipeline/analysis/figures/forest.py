"""The forest plot: every arm's effects with their intervals, and the margin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from pipeline.analysis.figures.style import COLUMN_IN, ArmStyle, axes_of, new_figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One effect of every arm."""

    label: str
    effects: Mapping[str, tuple[float, float, float]]
    """Arm to value, lower and upper end; arms without the effect are left out."""
    null: float
    """The value of no effect."""
    margin: float | None = None
    """Where "not worse" ends."""


def forest(panels: Sequence[Panel], arms: Sequence[str], styles: Mapping[str, ArmStyle]) -> Figure:
    """Return one panel an effect, side by side, with the arms in the same rows."""
    figure = new_figure(width_in=COLUMN_IN * 2, height_in=0.9 + 0.28 * len(arms))
    for number, panel in enumerate(panels, start=1):
        axes = axes_of(figure, (1, len(panels), number))
        for place, arm in enumerate(arms):
            if arm in panel.effects:
                value, low, high = panel.effects[arm]
                style = styles[arm]
                axes.plot([low, high], [place, place], color=style.colour, lw=1.4)
                axes.plot([value], [place], marker=style.marker, color=style.colour, ms=5)
        axes.axvline(panel.null, color="black", lw=0.6)
        if panel.margin is not None:
            axes.axvline(panel.margin, color="black", lw=0.8, ls=":")
        axes.set_xlabel(panel.label)
        axes.set_yticks(range(len(arms)), arms if number == 1 else [])
        axes.set_ylim(len(arms) - 0.5, -0.5)
    return figure
