"""Cached hidden states on disk: shards of safetensors, and an index that makes them a whole.

A shard carries the description of its samples in its own header, so that a job that was stopped
finds what it has. `index.json` comes last: without it the folder is unfinished. Needs PyTorch.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pipeline.host.files import read_json, replace_bytes
from pipeline.views.kept_lines import BoolArray, IntArray, TokenLines

FEATURES_VERSION = 1

INDEX = "index.json"

SHARDS = "shard-*.safetensors"

LAYER = "last hidden state, after the final norm"


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureEntry:
    """One output in the store."""

    sample_id: str
    instance_id: str
    n_lines: int
    n_tokens: int
    prompt_tokens: int
    """Of the prompt up to the output's end, after trimming."""
    shard: str
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Features:
    """One output's states and labels."""

    entry: FeatureEntry
    hidden: Tensor
    """Shape (tokens, hidden size), in the stored type."""
    lines: TokenLines
    kept: BoolArray
    line_chars: IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureStore:
    """A finished folder of features. Opening it loads no states."""

    folder: Path
    facts: Mapping[str, Any]
    """Backbone, revision, layer, hidden size, label hash, and how prompts were made."""
    entries: tuple[FeatureEntry, ...]
    sha256: str
    """Of what the index says but for the shards: labels, backbone, settings and outputs."""

    @property
    def hidden_size(self) -> int:
        """Width of a state."""
        return int(self.facts["hidden_size"])

    @property
    def instances(self) -> list[str]:
        """The instances in it, in order of appearance."""
        return list(dict.fromkeys(e.instance_id for e in self.entries))

    def load(self, entries: Sequence[FeatureEntry]) -> list[Features]:
        """Return states and labels of some outputs; only they are read."""
        return list(self.each(entries))

    def each(self, entries: Sequence[FeatureEntry]) -> Iterator[Features]:
        """Yield states and labels, one output in memory at a time."""
        for entry in entries:
            with safe_open(self.folder / entry.shard, framework="pt") as shard:
                part = {p: shard.get_tensor(f"{entry.key}.{p}") for p in _PARTS}
            yield Features(
                entry=entry,
                hidden=part["hidden"],
                lines=TokenLines(
                    first=part["first"].numpy().astype(np.int64),
                    last=part["last"].numpy().astype(np.int64),
                    n_lines=entry.n_lines,
                ),
                kept=part["kept"].numpy().astype(bool),
                line_chars=part["chars"].numpy().astype(np.int64),
            )


_PARTS = ("hidden", "first", "last", "kept", "chars")


def open_store(folder: Path) -> FeatureStore:
    """Return the features in `folder`.

    Raises:
        ValueError: the folder is unfinished, lacks a shard, or is of a newer version.
    """
    path = folder / INDEX
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; `linehead features` makes one (out={folder})")
    if not path.exists():
        raise ValueError(
            f"{folder} holds no finished features ({INDEX} is missing); run the same "
            "`linehead features` command again: it goes on where it stopped"
        )
    index = read_json(path)
    if index["facts"]["version"] > FEATURES_VERSION:
        raise ValueError(f"{path} was written by a newer planprune; install that one")
    for shard in sorted({e["shard"] for e in index["entries"]}):
        if not (folder / shard).exists():
            raise ValueError(
                f"{folder / shard} is gone; run the same `linehead features` command again: it "
                "makes what is missing"
            )
    return FeatureStore(
        folder=folder,
        facts=index["facts"],
        entries=tuple(FeatureEntry(**e) for e in index["entries"]),
        sha256=_digest(index),
    )


def _digest(index: Mapping[str, Any]) -> str:
    """Return what names an index, however its outputs are spread over shards.

    A job that was stopped has other shards than one that was not, and the same features.
    """
    entries = [{k: v for k, v in e.items() if k not in ("shard", "key")} for e in index["entries"]]
    text = json.dumps({"facts": index["facts"], "entries": entries}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class FeatureWriter:
    """Collects outputs and writes a shard whenever they come to `shard_bytes`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], *, shard_bytes: float) -> None:
        """Open `folder`, whose shards of the same `facts` count as done.

        Raises:
            ValueError: it holds features made otherwise.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._shard_bytes = folder, shard_bytes
        self._facts = {"version": FEATURES_VERSION, "layer": LAYER, **facts}
        self._entries = list(self._found())
        # Not how many there are: a name that is taken would be written over.
        self._next_shard = 1 + max((_number(path) for path in folder.glob(SHARDS)), default=-1)
        self._tensors: dict[str, Tensor] = {}
        self._pending: list[FeatureEntry] = []
        self._bytes = 0

    @property
    def done(self) -> frozenset[str]:
        """Ids of the samples whose shard is on disk."""
        return frozenset(e.sample_id for e in self._entries)

    def add(
        self,
        hidden: Tensor,
        lines: TokenLines,
        *,
        sample_id: str,
        instance_id: str,
        kept: BoolArray,
        line_chars: Sequence[int],
        prompt_tokens: int,
    ) -> None:
        """Add one output; its shard is written when it is full, or at `finish`."""
        key = str(len(self._pending))
        entry = FeatureEntry(
            sample_id=sample_id,
            instance_id=instance_id,
            n_lines=lines.n_lines,
            n_tokens=len(hidden),
            prompt_tokens=prompt_tokens,
            shard=f"shard-{self._next_shard:05d}.safetensors",
            key=key,
        )
        self._tensors |= {
            f"{key}.hidden": hidden.contiguous(),
            f"{key}.first": torch.from_numpy(lines.first.astype(np.int32)),
            f"{key}.last": torch.from_numpy(lines.last.astype(np.int32)),
            f"{key}.kept": torch.from_numpy(kept.astype(np.uint8)),
            f"{key}.chars": torch.tensor(list(line_chars), dtype=torch.int32),
        }
        self._pending.append(entry)
        self._bytes += hidden.numel() * hidden.element_size()
        if self._bytes >= self._shard_bytes:
            self.flush()

    def finish(self, order: Sequence[str], extra: Mapping[str, Any]) -> None:
        """Write what is left and the index, samples in `order`."""
        self.flush()
        by_id = {e.sample_id: e for e in self._entries}
        entries = [asdict(by_id[sample_id]) for sample_id in order if sample_id in by_id]
        index = {"facts": {**self._facts, **extra}, "entries": entries}
        replace_bytes(self._folder / INDEX, json.dumps(index, indent=1, sort_keys=True).encode())

    def flush(self) -> None:
        """Write what is collected as a shard, so that a stop loses nothing."""
        if not self._pending:
            return
        header = {
            "facts": json.dumps(self._facts, sort_keys=True),
            "entries": json.dumps([asdict(e) for e in self._pending]),
        }
        replace_bytes(self._folder / self._pending[0].shard, save(self._tensors, metadata=header))
        self._entries += self._pending
        self._next_shard += 1
        self._tensors, self._pending, self._bytes = {}, [], 0

    def _found(self) -> Iterator[FeatureEntry]:
        for path in sorted(self._folder.glob(SHARDS)):
            try:
                with safe_open(path, framework="pt") as shard:
                    header = shard.metadata()
            except SafetensorError as error:
                raise ValueError(
                    f"{path} is damaged ({error}); remove it and run the same command again: it "
                    "makes those outputs anew"
                ) from error
            if json.loads(header["facts"]) != json.loads(json.dumps(self._facts)):
                raise ValueError(
                    f"{path} was made from other labels, another backbone or other settings; "
                    "give another out=FOLDER or remove this one"
                )
            yield from (FeatureEntry(**e) for e in json.loads(header["entries"]))


def _number(path: Path) -> int:
    """Return the number in a shard's name."""
    return int(path.stem.removeprefix("shard-"))
