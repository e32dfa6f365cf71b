"""One model in this process, shared by all runs of a worker.

Owns loading without a network, cutting to what the model can take, and forward passes: one thread
at a time, a bounded number of tokens each, and never two runs' texts in one batch, so that what is
decided for an output does not depend on what else goes on. Knows no method.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import transformers

from pipeline.arms.line_pruning import LocalPruning
from pipeline.protocols import PrunerError
from pipeline.views.kept_lines import IntArray, TokenLines, output_tokens

T = TypeVar("T")

Head = Literal["token_classifier", "sequence_classifier", "causal"]

Models = Callable[[LocalPruning, Head], "LocalModel"]
"""Returns the model of these parameters, loaded once for all pruners that use it alike."""

_CLASSES: dict[Head, str] = {
    "token_classifier": "AutoModelForTokenClassification",
    "sequence_classifier": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
}

_CANNOT_LOAD = (OSError, ValueError, KeyError, RuntimeError, ImportError, AssertionError)
"""A PyTorch that was built without CUDA asserts that it was built with it."""

_ROWS_AT_ONCE = 256
"""Positions whose probabilities over the whole vocabulary are held at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTokens:
    """A text as the model's tokens, special ones aside."""

    ids: Sequence[int]
    offsets: IntArray
    """First and last character of each token, shape (tokens, 2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineTokens:
    """The tokens of a text that have characters, and on which lines they lie."""

    ids: Sequence[int]
    lines: TokenLines


class LocalModel:
    """A model and its tokenizer. Methods may be called from any thread."""

    def __init__(self, spec: LocalPruning, head: Head) -> None:
        """Load the model from a folder or the offline cache.

        Raises:
            PrunerError: it cannot be had, or is of another kind.
        """
        self.name = spec.model
        place: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        if spec.path is None:
            place["revision"] = spec.revision
        source = spec.path or spec.model
        transformers.utils.logging.disable_progress_bar()
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source, **place)
            loaded = getattr(transformers, _CLASSES[head]).from_pretrained(
                source, dtype=getattr(torch, spec.dtype), **place
            )
            self._model: Any = loaded.to(spec.device).eval()
        except _CANNOT_LOAD as error:
            raise PrunerError(f"cannot load {source} on {spec.device}: {error}") from error
        if head == "causal" and "logits_to_keep" not in signature(loaded.forward).parameters:
            raise PrunerError(f"{source} cannot be asked about the end of a text alone")
        if not self._tokenizer.is_fast:
            raise PrunerError(f"the tokenizer of {source} does not say where its tokens lie")
        self._device, self._lock = spec.device, threading.Lock()
        self._positions = position_limit(self._model.config)
        self.n_labels = int(getattr(self._model.config, "num_labels", 0) or 0)

    def window(self, wanted_tokens: int) -> int:
        """Return how many tokens the model can see at once, at most what is wanted."""
        return wanted_tokens if self._positions is None else min(wanted_tokens, self._positions)

    # --- text to tokens --------------------------------------------------------------------------
    def tokens(self, text: str) -> TextTokens:
        """Return the tokens of `text`, however many."""
        with self._lock:
            found = self._tokenizer(
                text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
        offsets = np.asarray(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        return TextTokens(ids=found["input_ids"], offsets=offsets)

    def line_tokens(self, text: str) -> LineTokens | None:
        """Return the tokens of `text` by line; None where it has no token with a character."""
        found = self.tokens(text)
        if not (found.offsets[:, 1] > found.offsets[:, 0]).any():
            return None
        placed = output_tokens(found.offsets, text, 0)
        return LineTokens(ids=found.ids[placed.start : placed.end], lines=placed.lines)

    def last_part(self, text: str, n_tokens: int) -> str:
        """Return the end of `text` that has at most `n_tokens`."""
        found = self.tokens(text)
        if len(found.ids) <= n_tokens:
            return text
        return text[int(found.offsets[len(found.ids) - n_tokens, 0]) :]

    @property
    def bounds(self) -> tuple[int, int]:
        """The special tokens around a text of a classifier.

        Raises:
            PrunerError: the tokenizer names none.
        """
        tokenizer = self._tokenizer
        first = _first(tokenizer.cls_token_id, tokenizer.bos_token_id)
        last = _first(tokenizer.sep_token_id, tokenizer.eos_token_id)
        if first is None or last is None:
            raise PrunerError(f"the tokenizer of {self.name} names no tokens around a text")
        return first, last

    @property
    def start_id(self) -> int:
        """The token before the first, so that a language model can judge the first one too.

        Raises:
            PrunerError: the tokenizer names none.
        """
        found = _first(self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        if found is None:
            raise PrunerError(f"the tokenizer of {self.name} names no token to begin a text with")
        return found

    # --- forward passes --------------------------------------------------------------------------
    def token_probabilities(
        self, windows: Sequence[Sequence[int]], label: int, *, at_once: int
    ) -> list[Any]:
        """Return for each window the probability of `label` at each token, as float64 arrays."""
        found: list[Any] = []
        for batch in _batches(windows, at_once):
            longest = max(map(len, batch))
            pad = _first(self._tokenizer.pad_token_id, 0)
            ids = torch.tensor([[*window, *[pad] * (longest - len(window))] for window in batch])
            mask = torch.tensor([[1] * len(w) + [0] * (longest - len(w)) for w in batch])
            logits = self._logits(input_ids=ids, attention_mask=mask)
            chosen = logits.float().softmax(-1)[..., label].double().cpu().numpy()
            found += [row[: len(w)] for row, w in zip(chosen, batch, strict=True)]
        return found

    def pair_scores(
        self, query: str, passages: Sequence[str], *, max_tokens: int, at_once: int
    ) -> list[float]:
        """Return how well each passage fits the query; what is too long loses its end."""
        scores: list[float] = []
        for batch in _batches(passages, at_once):
            with self._lock:
                encoded = self._tokenizer(
                    [query] * len(batch),
                    list(batch),
                    truncation="only_second",
                    max_length=max_tokens,
                    padding=True,
                    return_tensors="pt",
                )
            scores += self._logits(**encoded)[:, 0].double().cpu().tolist()
        return scores

    def surprise(self, ids: Sequence[int], n_last: int) -> Any:
        """Return -log p of each of the last `n_last` tokens, natural logarithm, float64.

        One window at a time: a language model's answer is as wide as its vocabulary.
        """
        logits = self._logits(input_ids=torch.tensor([ids]), logits_to_keep=n_last + 1)[0, :-1]
        targets = torch.tensor(ids[len(ids) - n_last :], device=logits.device)
        parts = [
            torch.nn.functional.cross_entropy(rows.float(), wanted, reduction="none")
            for rows, wanted in zip(
                logits.split(_ROWS_AT_ONCE), targets.split(_ROWS_AT_ONCE), strict=True
            )
        ]
        return torch.cat(parts).double().cpu().numpy()

    def _logits(self, **inputs: Any) -> Any:
        placed = {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in inputs.items()
        }
        with self._lock, torch.inference_mode():
            return self._model(**placed).logits


def position_limit(config: Any) -> int | None:
    """Return how many tokens the model has positions for; None where it does not say."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None:
        return None
    # RoBERTa counts positions from one past the padding token's id.
    unused = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return int(positions) - unused


def _first(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)


def _batches(items: Sequence[T], size: int) -> Sequence[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
