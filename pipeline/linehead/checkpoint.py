"""A trained head on disk: weights as safetensors with the card inside, and the card beside them.

The card says what the head belongs to (backbone, layer, revision, label hash), how it was trained
and how good it was; a head is of no use on another backbone. Needs PyTorch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save

from pipeline.host.files import replace_bytes
from pipeline.linehead.head import LineHead

HEAD_VERSION = 2
"""2: a line count at an edge belongs to the lower length bucket."""

WEIGHTS = "head.safetensors"

CARD = "card.json"
"""Written last: with it the training is finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedHead:
    """A head, ready to score, with its card."""

    head: LineHead
    card: Mapping[str, Any]

    @property
    def threshold(self) -> float:
        """The threshold with the best F1 in validation."""
        return float(self.card["threshold"])


def save_head(folder: Path, head: LineHead, card: Mapping[str, Any]) -> None:
    """Write weights and card; equal heads give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": HEAD_VERSION, **card}, indent=1, sort_keys=True)
    weights = {name: tensor.cpu().contiguous() for name, tensor in head.state_dict().items()}
    replace_bytes(folder / WEIGHTS, save(weights, metadata={"card": text}))
    replace_bytes(folder / CARD, text.encode())


def load_head(path: Path) -> TrainedHead:
    """Return the head in a folder or a `head.safetensors`, in evaluation mode on the CPU.

    Raises:
        ValueError: it is no head, or a newer planprune's.
    """
    file = path / WEIGHTS if path.is_dir() else path
    if not file.exists():
        raise ValueError(f"{path} holds no {WEIGHTS}; make one with `linehead train`")
    with safe_open(file, framework="pt") as weights:
        text = (weights.metadata() or {}).get("card")
        if text is None:
            raise ValueError(f"{file} has no card in it; it is no line head")
        state = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
    card = json.loads(text)
    if card["version"] > HEAD_VERSION:
        raise ValueError(
            f"{file} has version {card['version']}, this planprune reads {HEAD_VERSION}; update it"
        )
    if card["version"] < HEAD_VERSION and card["head"]["length_embedding"]:
        raise ValueError(
            f"{file} was trained with other length buckets (version {card['version']}); train it "
            "again on the same features"
        )
    head = LineHead(
        card["hidden_size"],
        dropout=card["head"]["dropout"],
        length_embedding=card["head"]["length_embedding"],
    )
    head.load_state_dict(state)
    return TrainedHead(head=head.eval(), card=card)
