"""`import`: the published heads of SWE-Pruner Pro, read as heads of ours. Needs PyTorch.

Their checkpoint is `best_model.pt`, a plain state dict in which nine tensors are the head's, and
`model_config.json`. Layers are the same as ours under other names, so that an import renames.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.host.files import read_json
from pipeline.linehead.checkpoint import save_head
from pipeline.linehead.head import LineHead
from pipeline.linehead.lengths import N_BUCKETS
from pipeline.linehead.settings import ImportJob

WEIGHTS = "best_model.pt"
CONFIG = "model_config.json"

PREFIXES = {"compression_head.": "layers.", "size_embedding.": "lengths."}
"""Their names of the head's two parts, and ours."""


def run_import_job(job: ImportJob) -> str:
    """Write the head of a published checkpoint to `out`; return what to print.

    Raises:
        ValueError: a file is missing, or the checkpoint holds another kind of head.
    """
    folder = Path(job.source)
    for name in (WEIGHTS, CONFIG):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}; download both files of the published head")
    config = read_json(folder / CONFIG)
    try:
        # Weights only: a checkpoint from the web must not run code here.
        loaded = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{folder / WEIGHTS} holds more than weights: {error}") from None
    state = renamed(loaded)
    head = _head_with(state, config, folder / WEIGHTS)
    card = {
        "backbone": job.backbone,
        "revision": job.revision,
        "layer": "last, after the final norm",
        "hidden_size": head.hidden_size,
        "head": {
            "dropout": float(config.get("dropout", 0.4)),
            "length_embedding": head.lengths is not None,
        },
        "n_parameters": head.n_parameters,
        "threshold": job.threshold,
        "fill_gaps": True,
        "published": dict(config),
    }
    save_head(Path(job.out), head, card)
    return (
        f"{job.out}: head of {job.backbone}, hidden size {head.hidden_size}, "
        f"{'with' if head.lengths is not None else 'without'} a length embedding"
    )


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the head's tensors of a published state dict under our names, in fp32.

    Tensors of the backbone, which some checkpoints carry too, are left out.
    """
    return {
        ours + name.removeprefix(theirs): tensor.float()
        for name, tensor in state.items()
        for theirs, ours in PREFIXES.items()
        if name.startswith(theirs)
    }


def _head_with(state: Mapping[str, Tensor], config: Mapping[str, Any], file: Path) -> LineHead:
    """Return a head with these weights.

    Raises:
        ValueError: they do not fit it.
    """
    embedding = state.get("lengths.weight")
    if embedding is not None and len(embedding) != N_BUCKETS:
        raise ValueError(
            f"{file} has {len(embedding)} length buckets; heads here have {N_BUCKETS}, "
            "as the published ones do"
        )
    if "layers.0.weight" not in state:
        raise ValueError(f"{file} has no tensor compression_head.0.weight; it is no published head")
    head = LineHead(
        len(state["layers.0.weight"]),
        dropout=float(config.get("dropout", 0.4)),
        length_embedding=embedding is not None,
    )
    try:
        head.load_state_dict(dict(state))
    except RuntimeError as error:
        raise ValueError(f"{file} holds another kind of head: {error}") from None
    head.eval()
    return head
