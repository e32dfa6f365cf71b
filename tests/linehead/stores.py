"""Feature stores whose truth is known: kept lines differ from dropped ones along one direction."""

from pathlib import Path

from tests.linehead.extra import need_torch

need_torch()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from pipeline.linehead.feature_store import FeatureStore, FeatureWriter, open_store  # noqa: E402
from pipeline.views.kept_lines import TokenLines  # noqa: E402

FACTS = {
    "backbone": "made-up",
    "revision": None,
    "architectures": ["Made"],
    "hidden_size": 8,
    "labels_sha256": "0" * 64,
}


def made_store(
    folder: Path,
    *,
    n_outputs: int = 24,
    n_instances: int = 6,
    signal: float = 3.0,
    seed: int = 0,
) -> FeatureStore:
    """Return a finished store in `folder`."""
    rng = np.random.default_rng(seed)
    writer = FeatureWriter(folder, FACTS, shard_bytes=4000)
    ids = [f"s{i}" for i in range(n_outputs)]
    for i, sample_id in enumerate(ids):
        n_lines = int(rng.integers(3, 30))
        kept = rng.random(n_lines) < 0.4
        places = np.repeat(np.arange(n_lines), rng.integers(1, 5, size=n_lines))
        lines = TokenLines(first=places, last=places, n_lines=n_lines)
        hidden = rng.normal(size=(len(places), 8))
        hidden[:, 0] += signal * np.where(kept[places], 1, -1)
        writer.add(
            torch.from_numpy(hidden).to(torch.float16),
            lines,
            sample_id=sample_id,
            instance_id=f"task-{i % n_instances}",
            kept=kept,
            line_chars=rng.integers(1, 80, size=n_lines).tolist(),
            prompt_tokens=100,
        )
    writer.finish(ids, {"n_skipped": 0})
    return open_store(folder)
