"""What is told of a training: the head's card, and the metrics beside it. Needs PyTorch."""

import json
import math
import resource
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pipeline.host.files import replace_bytes
from pipeline.linehead.feature_store import FeatureStore
from pipeline.linehead.head import LineHead
from pipeline.linehead.metrics import (
    Scored,
    best_threshold,
    line_auc,
    metrics_at,
    metrics_by_bucket,
    plain_buckets,
    plain_metrics,
    threshold_sweep,
)
from pipeline.linehead.settings import TrainJob
from pipeline.linehead.split import Split


def card_of(
    job: TrainJob,
    store: FeatureStore,
    head: LineHead,
    split: Split,
    validation: Sequence[Scored],
    *,
    best_epoch: int,
) -> dict[str, Any]:
    """Return the card of a trained head: what it belongs to, how it was made, how good it was."""
    fill_gaps = job.train.fill_gaps
    sweep = threshold_sweep(validation, job.train.thresholds, fill_gaps=fill_gaps)
    threshold = best_threshold(sweep)
    facts: Mapping[str, Any] = store.facts
    by_place = [e.instance_id for e in store.entries]
    return {
        **{n: facts[n] for n in ("backbone", "revision", "architectures", "layer", "hidden_size")},
        "labels_sha256": facts["labels_sha256"],
        "features_sha256": store.sha256,
        "head": asdict(job.head),
        "train": asdict(job.train),
        "n_parameters": head.n_parameters,
        "split": {
            **asdict(job.split),
            "n_train": len(split.train),
            "n_validation": len(split.validation),
            "n_test": len(split.test),
            "validation_instances": sorted({by_place[i] for i in split.validation}),
        },
        "best_epoch": best_epoch,
        "threshold": threshold,
        "fill_gaps": fill_gaps,
        "validation": {
            "at_0.5": plain_metrics(metrics_at(validation, 0.5, fill_gaps=fill_gaps)),
            "at_threshold": plain_metrics(metrics_at(validation, threshold, fill_gaps=fill_gaps)),
            "by_length": plain_buckets(
                metrics_by_bucket(validation, threshold, fill_gaps=fill_gaps)
            ),
            "sweep": [[p.threshold, plain_metrics(p.metrics)] for p in sweep],
        },
    }


def write_metrics(
    out: Path,
    history: Sequence[Mapping[str, Any]],
    outputs: Sequence[Scored],
    job: TrainJob,
    *,
    wall_s: float,
) -> None:
    """Write how the training went and what it took: `metrics.json`.

    Times and memory stay out of the card, so that equal trainings have equal heads.
    """
    auc = line_auc(outputs)
    metrics = {
        "history": list(history),
        "validation_line_auc": None if math.isnan(auc) else auc,
        "wall_s": wall_s,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_gpu_mb": (
            torch.cuda.max_memory_allocated() / 1e6 if job.device.startswith("cuda") else None
        ),
    }
    out.mkdir(parents=True, exist_ok=True)
    replace_bytes(out / "metrics.json", json.dumps(metrics, indent=1).encode())
