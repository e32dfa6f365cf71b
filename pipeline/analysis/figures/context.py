"""Context figures: the prompt of every call of one task, and the peak of every task, by arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.figures.style import ArmStyle, axes_of, legend_above, new_figure, thousands


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextTrace:
    """One run's prompts in order."""

    arm: str
    prompt_tokens: FloatArray
    is_cleanup: Sequence[bool]
    plan_step_calls: Sequence[int]
    """Calls at which a plan step was completed."""
    drops: Sequence[tuple[int, int]]
    """(call, outputs dropped before it)."""


def context_growth(traces: Sequence[ContextTrace], styles: Mapping[str, ArmStyle]) -> Figure:
    """Return context size per call of one task, plan steps and drops marked."""
    figure = new_figure()
    axes = axes_of(figure)
    for trace in traces:
        style = styles[trace.arm]
        calls = np.arange(1, len(trace.prompt_tokens) + 1)
        axes.plot(
            calls, trace.prompt_tokens, color=style.colour, ls=style.line, label=trace.arm, zorder=3
        )
        cleanup = np.flatnonzero(trace.is_cleanup)
        axes.plot(
            calls[cleanup], trace.prompt_tokens[cleanup], ls="", marker="x", ms=4,
            color=style.colour, zorder=4,
        )  # fmt: skip
        for call, n_outputs in trace.drops:
            axes.annotate(
                f"-{n_outputs}", (call + 1, trace.prompt_tokens[call]), xytext=(2, -9),
                textcoords="offset points", fontsize=6, color=style.colour,
            )  # fmt: skip
    _mark_plan_steps(axes, traces, styles)
    axes.set_xlabel("call")
    axes.set_ylabel("prompt tokens")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    thousands(axes.yaxis)
    if any(any(t.is_cleanup) for t in traces):
        axes.plot([], [], ls="", marker="x", ms=4, color="#666666", label="cleanup call")
    if any(t.plan_step_calls for t in traces):
        axes.plot([], [], ls="", marker="|", ms=6, color="#666666", label="plan step completed")
    legend_above(axes)
    return figure


def _mark_plan_steps(
    axes: object, traces: Sequence[ContextTrace], styles: Mapping[str, ArmStyle]
) -> None:
    for row, trace in enumerate(traces):
        for call in trace.plan_step_calls:
            axes.plot(  # type: ignore[attr-defined]
                [call + 1], [0.02 + 0.045 * row], marker="|", ms=6, color=styles[trace.arm].colour,
                transform=axes.get_xaxis_transform(), ls="",  # type: ignore[attr-defined]
            )  # fmt: skip


def peak_contexts(
    peaks: Mapping[str, FloatArray], styles: Mapping[str, ArmStyle], *, reference: str
) -> Figure:
    """Return peak context of every task, tasks in the order of the reference's peak.

    Args:
        peaks: arm to peaks (seed means) of the same instances in the same order.
        styles: from `arm_styles`.
        reference: the arm that gives the order.
    """
    figure = new_figure()
    axes = axes_of(figure)
    order = np.argsort(peaks[reference])
    places = np.arange(1, len(order) + 1)
    size = float(np.clip(60 / max(len(order), 1), 1.2, 4.0))
    for arm, values in peaks.items():
        style = styles[arm]
        axes.plot(
            places, values[order], ls="", marker=style.marker, ms=size, color=style.colour,
            mfc="none" if arm != reference else style.colour, mew=0.7, label=arm,
        )  # fmt: skip
        axes.axhline(float(np.median(values)), color=style.colour, ls=style.line, lw=0.8)
    axes.set_xlabel(f"task, by the peak of {reference} (lines: medians)")
    axes.set_ylabel("peak context, tokens")
    axes.set_ylim(bottom=0)
    thousands(axes.yaxis)
    legend_above(axes)
    return figure
