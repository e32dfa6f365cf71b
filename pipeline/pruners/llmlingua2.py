"""LLMLingua-2 over lines (arXiv 2403.12968): a token classifier says what is worth keeping.

The paper keeps the words with the best probability until a rate is met and drops the others inside
their sentence. Here a line is worth the mean probability of its tokens and stays or goes as a
whole, so that code stays readable and every pruner is judged by one interface; the last line may
pass the rate. The published windows of 512 tokens are cut at line ends instead of sentence ends.
No query. Loaded through Transformers (docs/decisions/006).
"""

import numpy as np

from pipeline.arms.llmlingua2 import LlmLingua2
from pipeline.protocols import PrunerError
from pipeline.pruners.local_model import LocalModel, Models
from pipeline.pruners.ranking import best_within, decisions, line_means, spans_of_lines
from pipeline.views.policy import PruneRequest

KEEP = 1
"""The classifier's label for what is to be kept."""


def load(spec: LlmLingua2, models: Models) -> "LlmLingua2Pruner":
    """Return the pruner of an arm's parameters."""
    return LlmLingua2Pruner(spec, models(spec, "token_classifier"))


class LlmLingua2Pruner:
    """Keeps the lines whose tokens the classifier finds worth keeping."""

    def __init__(self, spec: LlmLingua2, model: LocalModel) -> None:
        if model.n_labels != 2:
            raise PrunerError(f"{model.name} has {model.n_labels} labels; LLMLingua-2's have 2")
        self._spec, self._model = spec, model

    def prune(self, request: PruneRequest) -> list[bool] | None:
        """Return which lines stay."""
        found = self._model.line_tokens(request.text)
        if found is None:
            return None
        first, last = self._model.bounds
        limit = self._model.window(self._spec.window_tokens) - 2
        spans = list(spans_of_lines(found.lines.first, limit))
        windows = [[first, *found.ids[start:end], last] for start, end in spans]
        kept = self._model.token_probabilities(windows, KEEP, at_once=self._spec.batch_windows)
        scores = np.concatenate([window[1:-1] for window in kept])
        values = line_means(scores, found.lines)
        return decisions(best_within(values, found.lines.tokens_per_line, self._spec.rate))
