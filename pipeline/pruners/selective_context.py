"""Selective Context over lines (arXiv 2310.06201): what a language model could have guessed goes.

The paper filters phrases (or sentences) by the self-information of their tokens under a small
causal model. Here the unit is the line, worth the mean over its tokens; lines stay from the most
informative on until the share that is not reduced is spent. No query. Long outputs are read in
windows that overlap by a quarter, so that every token but the first ones has a past.
"""

import numpy as np

from pipeline.arms.selective_context import SelectiveContext
from pipeline.pruners.local_model import LocalModel, Models
from pipeline.pruners.ranking import best_within, decisions, line_means, overlapping
from pipeline.views.policy import PruneRequest


def load(spec: SelectiveContext, models: Models) -> "SelectiveContextPruner":
    """Return the pruner of an arm's parameters."""
    return SelectiveContextPruner(spec, models(spec, "causal"))


class SelectiveContextPruner:
    """Keeps the lines that say most."""

    def __init__(self, spec: SelectiveContext, model: LocalModel) -> None:
        self._spec, self._model = spec, model
        self._start = [model.start_id]

    def prune(self, request: PruneRequest) -> list[bool] | None:
        """Return which lines stay."""
        found = self._model.line_tokens(request.text)
        if found is None:
            return None
        limit = self._model.window(self._spec.window_tokens) - 1
        scores = np.concatenate(
            [
                self._model.surprise([*self._start, *found.ids[start:end]], end - fresh)
                for start, fresh, end in overlapping(len(found.ids), limit, limit // 4)
            ]
        )
        values = line_means(scores, found.lines)
        costs = found.lines.tokens_per_line
        return decisions(best_within(values, costs, 1.0 - self._spec.reduce_ratio))
