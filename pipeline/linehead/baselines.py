"""What a head has to beat: rules that look at no hidden state.

`keep_all` and `majority` know nothing of a line, `length` only how long the output is (as the
head's length embedding does), `surface` also the line's own length and place in the output.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.linehead.lengths import N_BUCKETS, length_bucket
from pipeline.linehead.linear import logistic_regression
from pipeline.linehead.metrics import LineScored
from pipeline.views.kept_lines import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainOutput:
    """What a baseline knows of an output, and the truth."""

    line_chars: IntArray
    kept: BoolArray


Baseline = Callable[[PlainOutput], LineScored]


def baselines(train: Sequence[PlainOutput]) -> dict[str, Baseline]:
    """Return the baselines, fitted on `train`, by name."""
    kept_share = float(np.concatenate([o.kept for o in train]).mean())
    return {
        "keep_all": _constant(1.0),
        "majority": _constant(1.0 if kept_share >= 0.5 else 0.0),
        "length": _length(train),
        "surface": _surface(train),
    }


def _constant(score: float) -> Baseline:
    def scored(output: PlainOutput) -> LineScored:
        return LineScored(line_scores=np.full(len(output.kept), score), kept=output.kept)

    return scored


def _length(train: Sequence[PlainOutput]) -> Baseline:
    """Every line gets the kept share of the training lines in its output's length bucket."""
    kept, total = np.zeros(N_BUCKETS), np.zeros(N_BUCKETS)
    for output in train:
        bucket = length_bucket(len(output.kept))
        kept[bucket] += output.kept.sum()
        total[bucket] += len(output.kept)
    # A bucket never seen gets the share over all.
    rates = np.where(total > 0, kept / np.maximum(total, 1), kept.sum() / total.sum())

    def scored(output: PlainOutput) -> LineScored:
        rate = rates[length_bucket(len(output.kept))]
        return LineScored(line_scores=np.full(len(output.kept), rate), kept=output.kept)

    return scored


def _surface(train: Sequence[PlainOutput]) -> Baseline:
    model = logistic_regression(
        np.concatenate([_surface_features(o) for o in train]),
        np.concatenate([o.kept for o in train]),
        l2=1.0,
    )

    def scored(output: PlainOutput) -> LineScored:
        scores = model.probabilities(_surface_features(output))
        return LineScored(line_scores=scores, kept=output.kept)

    return scored


def _surface_features(output: PlainOutput) -> FloatArray:
    n = len(output.kept)
    place = np.arange(n) / max(1, n - 1)
    bucket = np.zeros((n, N_BUCKETS))
    bucket[:, length_bucket(n)] = 1
    own = np.stack([np.log1p(output.line_chars), place, place**2, output.line_chars <= 1], axis=1)
    return np.concatenate([own, bucket], axis=1).astype(np.float64)
