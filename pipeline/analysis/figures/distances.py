"""How far back re-fetches reach: turns between a read and its source, by arm."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.figures.style import ArmStyle, axes_of, legend_above, new_figure


def refetch_distances(
    distances: Mapping[str, FloatArray], n_runs: Mapping[str, int], styles: Mapping[str, ArmStyle]
) -> Figure:
    """Return re-fetches a run within so many turns of their source, cumulated, by arm."""
    figure = new_figure()
    axes = axes_of(figure)
    far = 1.0
    for arm, turns in distances.items():
        style = styles[arm]
        if not len(turns) or not n_runs[arm]:
            continue
        ordered = np.sort(turns)
        far = max(far, float(np.quantile(ordered, 0.99)))
        axes.step(
            ordered, np.arange(1, len(ordered) + 1) / n_runs[arm], where="post",
            color=style.colour, ls=style.line, label=arm,
        )  # fmt: skip
    axes.set_xlim(0, far)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("turns since the same lines were read")
    axes.set_ylabel("re-fetches a run, cumulated")
    legend_above(axes)
    return figure
