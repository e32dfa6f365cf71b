"""Retrieval as a pruner: a cross-encoder picks the windows of lines that fit the query best.

Windows of 40 lines that share 10, the best three stay (docs/methods.md, Line pruners). The query is
what the agent said and ran; without one nothing is pruned, nor where all windows would stay anyway.
"""

import numpy as np

from pipeline.arms.rag import Rag
from pipeline.protocols import PrunerError
from pipeline.pruners.local_model import LocalModel, Models
from pipeline.pruners.ranking import covered, decisions, line_windows
from pipeline.views.kept_lines import split_lines
from pipeline.views.policy import PruneRequest


def load(spec: Rag, models: Models) -> "RagPruner":
    """Return the pruner of an arm's parameters."""
    return RagPruner(spec, models(spec, "sequence_classifier"))


class RagPruner:
    """Keeps the windows that a reranker puts first."""

    def __init__(self, spec: Rag, model: LocalModel) -> None:
        if model.n_labels != 1:
            raise PrunerError(f"{model.name} has {model.n_labels} labels; a reranker has 1")
        self._spec, self._model = spec, model

    def prune(self, request: PruneRequest) -> list[bool] | None:
        """Return which lines stay."""
        spec, lines = self._spec, split_lines(request.text)
        windows = line_windows(len(lines), spec.window_lines, spec.overlap_lines)
        if request.query is None or len(windows) <= spec.keep_windows:
            return None
        limit = self._model.window(spec.window_tokens)
        query = self._model.last_part(request.query, limit // 2)
        passages = ["".join(lines[start:end]) for start, end in windows]
        scores = np.asarray(
            self._model.pair_scores(query, passages, max_tokens=limit, at_once=spec.batch_windows)
        )
        best = np.argsort(-scores, kind="stable")[: spec.keep_windows]
        return decisions(covered([windows[i] for i in best], len(lines)))
