"""A head's scores for cached features. Needs PyTorch."""

from collections.abc import Iterable

import numpy as np
import torch

from pipeline.linehead.feature_store import Features
from pipeline.linehead.head import LineHead
from pipeline.linehead.lengths import length_bucket
from pipeline.linehead.metrics import Scored


def scored(head: LineHead, features: Iterable[Features], *, device: str = "cpu") -> list[Scored]:
    """Return every output with the head's keep probability a token; the head is in eval mode."""
    was_training = head.training
    head.eval()
    outputs = []
    for item in features:
        bucket = torch.tensor(length_bucket(item.entry.n_lines), device=device)
        with torch.inference_mode():
            scores = torch.sigmoid(head(item.hidden.to(device), bucket))
        outputs.append(
            Scored(scores=scores.cpu().numpy().astype(np.float64), lines=item.lines, kept=item.kept)
        )
    head.train(was_training)
    return outputs
