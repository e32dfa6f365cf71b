"""How well lines were told apart: counts, F1, keep rate, AUC, and the choice of a threshold.

Figures are over all lines of a set taken together (micro), and by length bucket. NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.linehead.lengths import bucket_name, length_bucket
from pipeline.views.kept_lines import BoolArray, FloatArray, TokenLines, gaps_filled, kept_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One output with scores a token and the truth a line."""

    scores: FloatArray
    lines: TokenLines
    kept: BoolArray

    def decisions(self, threshold: float, *, fill_gaps: bool) -> BoolArray:
        """Return which lines stay at a threshold."""
        return kept_lines(self.scores, self.lines, threshold=threshold, fill_gaps=fill_gaps)

    @property
    def line_scores(self) -> FloatArray:
        """The mean score of each line's tokens; NaN where it has none."""
        sums = np.zeros(self.lines.n_lines + 1)
        np.add.at(sums, self.lines.first, self.scores)
        np.add.at(sums, self.lines.last + 1, -self.scores)
        with np.errstate(invalid="ignore"):
            means: FloatArray = np.cumsum(sums)[:-1] / self.lines.tokens_per_line
        return means


@dataclass(frozen=True, kw_only=True, slots=True)
class LineScored:
    """One output whose scores are a line's from the start: what baselines give."""

    line_scores: FloatArray
    kept: BoolArray

    def decisions(self, threshold: float, *, fill_gaps: bool) -> BoolArray:
        """Return which lines stay at a threshold."""
        kept = self.line_scores >= threshold
        return gaps_filled(kept) if fill_gaps else kept


AnyScored = Scored | LineScored


@dataclass(frozen=True, kw_only=True, slots=True)
class LineMetrics:
    """Figures over a set of lines; keep is the positive class. NaN where undefined."""

    f1: float
    precision: float
    recall: float
    keep_rate: float
    """Share of the lines that stay."""
    true_keep_rate: float
    n_lines: int
    n_outputs: int


def line_metrics(truth: Sequence[BoolArray], decisions: Sequence[BoolArray]) -> LineMetrics:
    """Return the figures over all lines of some outputs.

    F1 is 0 where lines ought to stay and none rightly does, NaN where there is nothing to find.
    """
    if not truth:
        nan = float("nan")
        return LineMetrics(
            f1=nan, precision=nan, recall=nan, keep_rate=nan, true_keep_rate=nan,
            n_lines=0, n_outputs=0,
        )  # fmt: skip
    y, kept = np.concatenate(list(truth)), np.concatenate(list(decisions))
    hits, n_kept, n_true = int((y & kept).sum()), int(kept.sum()), int(y.sum())
    return LineMetrics(
        f1=_ratio(2 * hits, n_kept + n_true),
        precision=_ratio(hits, n_kept),
        recall=_ratio(hits, n_true),
        keep_rate=_ratio(n_kept, len(y)),
        true_keep_rate=_ratio(n_true, len(y)),
        n_lines=len(y),
        n_outputs=len(truth),
    )


def metrics_at(outputs: Sequence[AnyScored], threshold: float, *, fill_gaps: bool) -> LineMetrics:
    """Return the figures of scored outputs at a threshold."""
    return line_metrics(
        [o.kept for o in outputs], [o.decisions(threshold, fill_gaps=fill_gaps) for o in outputs]
    )


def metrics_by_bucket(
    outputs: Sequence[AnyScored], threshold: float, *, fill_gaps: bool
) -> dict[str, LineMetrics]:
    """Return the figures by length bucket, the buckets that occur, shortest first."""
    buckets: dict[int, list[AnyScored]] = {}
    for output in outputs:
        buckets.setdefault(length_bucket(len(output.kept)), []).append(output)
    return {
        bucket_name(b): metrics_at(buckets[b], threshold, fill_gaps=fill_gaps)
        for b in sorted(buckets)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepPoint:
    """The figures at one threshold."""

    threshold: float
    metrics: LineMetrics


def threshold_sweep(
    outputs: Sequence[AnyScored], thresholds: Sequence[float], *, fill_gaps: bool
) -> list[SweepPoint]:
    """Return the figures at every threshold."""
    return [
        SweepPoint(threshold=t, metrics=metrics_at(outputs, t, fill_gaps=fill_gaps))
        for t in thresholds
    ]


def best_threshold(sweep: Sequence[SweepPoint], *, default: float = 0.5) -> float:
    """Return the threshold with the best F1; of equals the one nearest to `default`."""
    defined = [p for p in sweep if np.isfinite(p.metrics.f1)]
    if not defined:
        return default
    return min(defined, key=lambda p: (-p.metrics.f1, abs(p.threshold - default))).threshold


def line_auc(outputs: Sequence[AnyScored]) -> float:
    """Return the AUC of the lines' scores; lines without a score are left out."""
    if not outputs:
        return float("nan")
    return auc(
        np.concatenate([o.line_scores for o in outputs]), np.concatenate([o.kept for o in outputs])
    )


def auc(scores: FloatArray, truth: BoolArray) -> float:
    """Return the area under the ROC curve (ties count half); NaN with one class only."""
    defined = np.isfinite(scores)
    scores, truth = scores[defined], truth[defined]
    n_true, n_false = int(truth.sum()), int((~truth).sum())
    if not n_true or not n_false:
        return float("nan")
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[places]
    return float((ranks[truth].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def plain_metrics(metrics: LineMetrics) -> dict[str, Any]:
    """Return figures as JSON holds them: None for NaN."""
    return {
        k: None if isinstance(v, float) and not np.isfinite(v) else v
        for k, v in asdict(metrics).items()
    }


def plain_buckets(buckets: Mapping[str, LineMetrics]) -> dict[str, dict[str, Any]]:
    """Return figures by bucket as JSON holds them."""
    return {name: plain_metrics(m) for name, m in buckets.items()}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
