"""`probe`: is it in the hidden states at all? A linear rule on each line's mean state.

The paper's first step, before any head is trained: logistic regression and Fisher's discriminant
on mean-pooled line states, against the bounds that need no state. Needs PyTorch to read features.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.host.files import replace_bytes
from pipeline.linehead.feature_store import Features, FeatureStore, open_store
from pipeline.linehead.linear import discriminant, logistic_regression
from pipeline.linehead.metrics import auc, line_metrics, plain_metrics
from pipeline.linehead.probe_figure import draw_probe
from pipeline.linehead.settings import ProbeJob
from pipeline.linehead.split import split_of
from pipeline.views.kept_lines import BoolArray, FloatArray

MAX_LINES = 40_000
"""Lines the rules are fitted on at most; more change nothing and fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """Mean states of lines and their labels."""

    states: FloatArray
    kept: BoolArray


def run_probe_job(job: ProbeJob) -> list[str]:
    """Fit, measure on held-out outputs, draw, and return what to print.

    Raises:
        ValueError: the features cannot be split, or hold one class of lines only.
    """
    store = open_store(Path(job.features))
    split = split_of([e.instance_id for e in store.entries], job.split)
    held_out = split.test or split.validation
    train, test = _pooled(store, split.train), _pooled(store, held_out)
    logistic = logistic_regression(train.states, train.kept, l2=job.l2)
    fisher = discriminant(train.states, train.kept, shrinkage=job.shrinkage)
    results: dict[str, Any] = {
        "backbone": store.facts["backbone"],
        "layer": store.facts["layer"],
        "features_sha256": store.sha256,
        "n_train_lines": len(train.kept),
        "n_held_out_lines": len(test.kept),
        "held_out_instances": sorted({store.entries[i].instance_id for i in held_out}),
        "rules": {
            "keep_all": _figures(np.ones(len(test.kept)), test.kept),
            "majority": _figures(np.full(len(test.kept), train.kept.mean() - 0.5), test.kept),
            "logistic": _figures(logistic.values(test.states), test.kept),
            "lda": _figures(fisher.values(test.states), test.kept),
        },
    }
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    scores = logistic.values(test.states)
    draw_probe(out, fisher.values(test.states), scores, test.kept, backbone=results["backbone"])
    replace_bytes(out / "probe.json", json.dumps(results, indent=1).encode())
    return [
        f"{len(test.kept)} held-out lines of {', '.join(results['held_out_instances'])}; "
        f"{len(train.kept)} to fit on",
        *(f"{name:>9}: {_told(figures)}" for name, figures in results["rules"].items()),
        f"figure: {out / 'probe.svg'}",
    ]


def mean_states(features: Features) -> FloatArray:
    """Return the mean state of each line's tokens; zero where a line has none."""
    lines = features.lines
    hidden = features.hidden.float().numpy()
    before = np.concatenate(
        [np.zeros((1, hidden.shape[1])), np.cumsum(hidden, axis=0, dtype=float)]
    )
    places = np.arange(lines.n_lines)
    # Tokens lie in order, so a line's are one stretch.
    begins = np.searchsorted(lines.last, places, side="left")
    ends = np.maximum(np.searchsorted(lines.first, places, side="right"), begins)
    counts = np.maximum(ends - begins, 1)[:, None]
    means: FloatArray = (before[ends] - before[begins]) / counts
    return means


def _pooled(store: FeatureStore, places: Sequence[int]) -> Pooled:
    states, kept, n_lines = [], [], 0
    for item in store.each([store.entries[i] for i in places]):
        states.append(mean_states(item).astype(np.float32))
        kept.append(item.kept)
        n_lines += len(item.kept)
        if n_lines >= MAX_LINES:
            break
    return Pooled(states=np.concatenate(states).astype(np.float64), kept=np.concatenate(kept))


def _figures(scores: FloatArray, truth: BoolArray) -> dict[str, Any]:
    area = auc(scores, truth)
    return {
        "auc": None if math.isnan(area) else area,
        **plain_metrics(line_metrics([truth], [scores >= 0])),
    }


def _told(figures: dict[str, Any]) -> str:
    names = ("auc", "f1", "precision", "recall", "keep_rate")
    return ", ".join(
        f"{name} {'-' if figures[name] is None else format(figures[name], '.3f')}" for name in names
    )
