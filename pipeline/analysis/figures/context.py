"""Context figures: the prompt of every call of one task, and the peak of every task, by arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from matplotlib.figure import Figure

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.figures.style import (
    ArmStyle,
    axes_of,
    legend_above,
    new_figure,
    short_number,
    thousands,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """What was taken out of the view before one call."""

    call: int
    """Place of the call in the trace."""
    n_outputs: int
    n_tokens: float
    """Of the outputs, before placeholders; NaN where they were not counted."""

    @property
    def label(self) -> str:
        """Outputs, and tokens where they are known."""
        tokens = "" if isnan(self.n_tokens) else f", {short_number(self.n_tokens)}"
        return f"-{self.n_outputs}{tokens}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextTrace:
    """One run's prompts in order."""

    arm: str
    prompt_tokens: FloatArray
    is_cleanup: Sequence[bool]
    plan_step_calls: Sequence[int]
    """Calls at which a plan step was completed."""
    drops: Sequence[Drop]


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
        for drop in trace.drops:
            axes.annotate(
                drop.label, (drop.call + 1, trace.prompt_tokens[drop.call]), xytext=(2, -9),
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


_FILLS = {"full": "solved", "left": "by some seeds", "none": "not solved"}
"""How a marker is filled, to the outcome that it stands for."""


def peak_contexts(
    peaks: Mapping[str, FloatArray],
    solved: Mapping[str, FloatArray],
    styles: Mapping[str, ArmStyle],
    *,
    reference: str,
) -> Figure:
    """Return peak context of every task by outcome, in the order of the reference's peak.

    Args:
        peaks: arm to peaks (seed means) of the same instances in the same order.
        solved: arm to seed means of resolved, likewise; NaN without a grade.
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
        fills = np.array([_fill(share) for share in solved[arm][order]])
        for fill in _FILLS:
            axes.plot(
                places[fills == fill], values[order][fills == fill], ls="", marker=style.marker,
                ms=size, color=style.colour, fillstyle=fill, mfcalt="none", mew=0.7,
            )  # fmt: skip
        axes.plot([], [], ls=style.line, marker=style.marker, color=style.colour, ms=4, label=arm)
        axes.axhline(float(np.median(values)), color=style.colour, ls=style.line, lw=0.8)
    if not all(np.isnan(shares).all() for shares in solved.values()):
        shown = {_fill(share) for shares in solved.values() for share in shares}
        for fill in (f for f in _FILLS if f in shown):
            axes.plot(
                [], [], ls="", marker="o", ms=4, color="#666666", fillstyle=fill, mfcalt="none",
                mew=0.7, label=_FILLS[fill],
            )  # fmt: skip
    axes.set_xlabel(f"task, by the peak of {reference} (lines: medians)")
    axes.set_ylabel("peak context, tokens")
    axes.set_ylim(bottom=0)
    thousands(axes.yaxis)
    legend_above(axes)
    return figure


def _fill(solved_share: float) -> str:
    """Return how the marker of a task is filled; a task without a grade is like one not solved."""
    if solved_share >= 1:
        return "full"
    return "left" if solved_share > 0 else "none"
