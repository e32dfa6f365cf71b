"""The probe's figure: kept and dropped lines along the discriminant, and the ROC curve."""

from pathlib import Path

import numpy as np

from pipeline.linehead.metrics import auc
from pipeline.views.kept_lines import BoolArray, FloatArray

_KEPT, _DROPPED = "#0072B2", "#D55E00"


def draw_probe(
    folder: Path, projection: FloatArray, scores: FloatArray, kept: BoolArray, *, backbone: str
) -> None:
    """Write `probe.svg`, `probe.pdf` and `probe.png` into `folder`.

    Args:
        folder: Where to.
        projection: Of held-out lines, along the discriminant.
        scores: The logistic rule's, for the curve.
        kept: The truth.
        backbone: Named in the title.
    """
    import matplotlib
    from matplotlib.figure import Figure

    look = {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "planprune",
        "figure.constrained_layout.use": True,
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(6.8, 2.6))
        left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
        low, high = np.quantile(projection, (0.005, 0.995))
        bins = np.linspace(float(low), float(high), 41)
        for mask, colour, hatch, name in (
            (kept, _KEPT, "///", "kept"),
            (~kept, _DROPPED, "...", "dropped"),
        ):
            if mask.any():
                left.hist(
                    projection[mask], bins=bins.tolist(), density=True, histtype="step",
                    color=colour, hatch=hatch, alpha=0.8, label=f"{name} ({mask.sum()} lines)",
                )  # fmt: skip
        left.set_xlabel("linear discriminant (within-class spread 1)")
        left.set_ylabel("density")
        left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        order = np.argsort(-scores, kind="stable")
        found = np.cumsum(kept[order]) / max(1, kept.sum())
        wrong = np.cumsum(~kept[order]) / max(1, (~kept).sum())
        right.plot(np.append(0, wrong), np.append(0, found), color=_KEPT)
        right.plot([0, 1], [0, 1], color="#666666", ls=":", lw=0.8)
        right.set_xlabel("dropped lines that stay")
        right.set_ylabel("kept lines that stay")
        right.set_title(f"logistic regression, AUC {auc(scores, kept):.3f} ({backbone})")
        for ending in ("svg", "pdf", "png"):
            stamp = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending, {})
            figure.savefig(folder / f"probe.{ending}", dpi=160, metadata=stamp)
