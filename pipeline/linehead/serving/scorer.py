"""The head at work in an engine: every token's scores, one row a slot of the KV cache.

Indexed like the cache, so that a token which a later request finds cached still has its scores,
whoever computed it. Writes go through `index_copy_` with padding sent to a spare row: no shape
depends on the data. Anything that goes wrong switches the scorer off and says why; the chat goes
on without scores. Needs PyTorch.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.linehead.backbone_name import BackboneName
from pipeline.linehead.checkpoint import load_head

SCORING_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)
"""What PyTorch raises for shapes, devices, memory and kernels."""

_log = logging.getLogger(__name__)

_current: list["Scorer"] = []
"""The scorer of this process. vLLM offers no other way from a model to the connector beside it."""


class HeadMismatchError(ValueError):
    """The head does not belong to the served model, or the engine runs in a way it cannot."""


class Scorer:
    """Scores what the model computes, and reads scores back."""

    def __init__(
        self,
        path: Path,
        *,
        hidden_size: int,
        served: BackboneName,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Load the head.

        Raises:
            HeadMismatchError: it was trained on another model than the served one.
        """
        # Models are built with their own default type and device; the head is fp32 on its way.
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            trained = load_head(path)
        finally:
            torch.set_default_dtype(default)
        backbone = BackboneName(repo=trained.card["backbone"], revision=trained.card["revision"])
        if trained.head.hidden_size != hidden_size or not backbone.may_be(served):
            raise HeadMismatchError(
                f"{path} was trained on {backbone}, hidden size {trained.head.hidden_size}; the "
                f"server has {served}, hidden size {hidden_size}: a head is of no use on another "
                "model"
            )
        self._head = trained.head.requires_grad_(requires_grad=False)
        self._n_columns = 1 if trained.head.lengths is None else trained.head.lengths.num_embeddings
        self._device: torch.device | None = None
        self._table: Tensor | None = None
        self._clock = clock
        self._step_s: float | None = 0.0
        self.layer = ""
        """The attention layer whose slots index the table."""
        self.failure: str | None = None
        """Why the scorer is off."""

    def allocate(self, n_slots: int, device: torch.device, layer: str) -> None:
        """Make the table; rows are unknown (NaN) until their token is computed."""
        self._table = torch.full(
            (n_slots + 1, self._n_columns), float("nan"), dtype=torch.float32, device=device
        )
        self.layer = layer

    def after_forward(self, hidden: Any, slots_by_layer: Any) -> None:
        """Score the tokens of one step; never raises."""
        if self.failure is not None:
            return
        started = self._clock()
        try:
            self._score(hidden, slots_by_layer)
        except SCORING_ERRORS as error:
            # Rows of this step may hold other tokens' scores now: nothing here is to be trusted.
            self.failure = f"the line head failed: {type(error).__name__}: {error}"
            _log.exception("line head switched off")
        if self._table is None or not isinstance(slots_by_layer, dict):
            # The engine measures its memory or warms up: no request's time.
            return
        if self._device is None or self._device.type != "cpu":
            # Kernels run on behind our back: the time until they were queued says nothing.
            self._step_s = None
        elif self._step_s is not None:
            self._step_s += self._clock() - started

    def take_step_s(self) -> float | None:
        """Return the seconds spent since this was last asked; None where it cannot be measured."""
        spent = self._step_s
        self._step_s = 0.0
        return spent

    def read(self, slots: Sequence[int], column: int) -> list[float]:
        """Return the scores of the tokens in `slots` for a length bucket; NaN if not scored."""
        if self._table is None:
            raise RuntimeError("the score table is not allocated")
        rows = torch.tensor(slots, device=self._table.device)
        chosen = min(column, self._n_columns - 1)
        return [float(s) for s in self._table[rows, chosen].tolist()]

    def _score(self, hidden: Tensor, slots_by_layer: Mapping[str, Tensor]) -> None:
        if hidden.device != self._device:
            self._head.to(hidden.device)
            self._device = hidden.device
        # Computed even before there is a table, so that the engine's memory profile sees it.
        scores = self._head.scores_by_bucket(hidden)
        if self._table is None or not isinstance(slots_by_layer, dict):
            return
        slots = slots_by_layer.get(self.layer)
        if slots is None:
            return
        n = min(slots.shape[0], scores.shape[0])
        spare = self._table.shape[0] - 1
        rows = torch.where(slots[:n] >= 0, slots[:n], spare).to(torch.int64)
        self._table.index_copy_(0, rows, scores[:n])


def set_current(scorer: Scorer) -> None:
    """Make `scorer` the one of this process."""
    _current[:] = [scorer]


def current() -> Scorer | None:
    """Return the scorer of this process, if the served model has a head."""
    return _current[0] if _current else None
