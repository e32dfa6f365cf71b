"""Where the input tokens went: stacked bars of step, cleanup and auxiliary calls by arm."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from pipeline.analysis.figures.style import (
    axes_of,
    legend_above,
    new_figure,
    short_number,
    thousands,
)
from pipeline.plural import plural

_PARTS = (
    ("steps", "#4D4D4D", ""),
    ("cleanup", "#E69F00", "///"),
    ("summaries and other calls", "#56B4E9", "..."),
)


def stacked_tokens(parts: Mapping[str, Sequence[float]], *, n_instances: int) -> Figure:
    """Return stacked input tokens by arm.

    Args:
        parts: arm to tokens in step, cleanup and auxiliary calls, summed over instances.
        n_instances: instances that every sum is over.
    """
    figure = new_figure(height_in=0.9 + 0.32 * len(parts))
    axes = axes_of(figure)
    arms = list(parts)
    starts = [0.0] * len(arms)
    for number, (label, colour, hatch) in enumerate(_PARTS):
        widths = [parts[arm][number] for arm in arms]
        if not any(widths):
            continue
        axes.barh(
            arms, widths, left=starts, color=colour, hatch=hatch, edgecolor="white", lw=0.5,
            height=0.62, label=label,
        )  # fmt: skip
        starts = [s + w for s, w in zip(starts, widths, strict=True)]
    for arm, total in zip(arms, starts, strict=True):
        axes.annotate(
            short_number(total), (total, arm), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=7,
        )  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlim(0, max([*starts, 1.0]) * 1.18)
    axes.set_xlabel(f"input tokens, {plural(n_instances, 'task')}")
    thousands(axes.xaxis)
    legend_above(axes, columns=3)
    return figure
