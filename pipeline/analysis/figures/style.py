"""How every figure looks: sizes, fonts, colours that survive greyscale and colour blindness.

An arm has one colour, line style, marker and hatch, given by its place in the sweep, so that no
figure depends on colour alone. Evidence that is not live is written into the figure itself.

Colours: Okabe and Ito (2008), "Color Universal Design".
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

COLUMN_IN = 3.4
"""Width of one column of a two-column page."""

_RC = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "planprune",
    "figure.constrained_layout.use": True,
}

_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7A00")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo")

_HANDLE_IN, _CHARACTER_IN, _ROW_IN = 0.45, 0.058, 0.155
"""Sizes of legend entries at its font size, in inches."""

_ROWS_WITH_ROOM = 2
"""Rows of a legend that a figure's own height allows for."""

NO_SERIES = "nothing to draw"
"""What stands in a figure for which no arm has a value."""

EVIDENCE_WORDS = {
    "live": "",
    "sim": "simulation",
    "synthetic": "synthetic data",
    "replay": "counterfactual replay",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmStyle:
    """How one arm is drawn."""

    colour: str
    line: Any
    marker: str
    hatch: str


def arm_styles(arms: Sequence[str], *, reference: str) -> dict[str, ArmStyle]:
    """Return a style for each arm: the reference black, the others in the order given."""
    ordered = [a for a in arms if a == reference] + [a for a in arms if a != reference]
    return {
        arm: ArmStyle(
            colour=_COLOURS[i % len(_COLOURS)],
            line=_LINES[i % len(_LINES)],
            marker=_MARKERS[i % len(_MARKERS)],
            hatch=_HATCHES[i % len(_HATCHES)],
        )
        for i, arm in enumerate(ordered)
    }


def evidence_word(evidence: str) -> str:
    """Return the label that captions and figures carry; empty for live runs."""
    words = [EVIDENCE_WORDS.get(part, part) for part in evidence.split("+")]
    return " and ".join(word for word in words if word)


def styled() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn; outside it matplotlib's own look applies."""
    context: AbstractContextManager[None] = matplotlib.rc_context(_RC)
    return context


def new_figure(*, width_in: float = COLUMN_IN, height_in: float = 2.4) -> Figure:
    """Return an empty figure."""
    return Figure(figsize=(width_in, height_in))


def axes_of(figure: Figure, place: tuple[int, int, int] = (1, 1, 1)) -> Any:
    """Return axes at `place` (rows, columns, index from 1)."""
    return figure.add_subplot(*place)


def legend_above(axes: Any, *, columns: int = 2) -> None:
    """Put the legend over the axes, where it hides no data; axes without a series say so."""
    labels = axes.get_legend_handles_labels()[1]
    if not labels:
        axes.text(0.5, 0.5, NO_SERIES, transform=axes.transAxes, ha="center", va="center")
        return
    # A legend that is wider or higher than its figure leaves the axes no room.
    width_in, height_in = axes.figure.get_size_inches()
    entry_in = _HANDLE_IN + _CHARACTER_IN * max(map(len, labels))
    columns = max(1, min(columns, int(width_in // entry_in)))
    more_rows = max(-(-len(labels) // columns) - _ROWS_WITH_ROOM, 0)
    axes.figure.set_size_inches(width_in, height_in + more_rows * _ROW_IN)
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, columnspacing=1.2,
        handlelength=2.4, borderaxespad=0.2,
    )  # fmt: skip


def thousands(axis: Any) -> None:
    """Label an axis of tokens as 10k, 2M."""
    axis.set_major_formatter(lambda value, _: short_number(value))


def short_number(value: float) -> str:
    """Return a count as people write it: 950, 12.3k, 8.1M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    # Sums of seed means that cancel leave 1e-17 behind, which is nothing.
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"


def save(figure: Figure, stem: Path, *, evidence: str) -> Path:
    """Write the figure as SVG and PDF, evidence label included; return the SVG's path."""
    word = evidence_word(evidence)
    stem.parent.mkdir(parents=True, exist_ok=True)
    if word:
        figure.supxlabel(word.upper(), fontsize=6, color="#666666", x=0.995, ha="right")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
    return stem.with_suffix(".svg")
