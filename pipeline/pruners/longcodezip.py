"""LongCodeZip's coarse step over lines (arXiv 2510.00446): functions that explain the query stay.

A chunk is worth what it takes off the query's surprise, log PPL(q) - log PPL(q | chunk); the paper
takes the difference of perplexities, which ranks the same. Chunks stay best first until the rate's
tokens are spent. The paper then prunes blocks inside the chosen functions by perplexity and a
knapsack; here the chunk in which the budget ends keeps its first lines (the signature among them),
since lines within a function are what the other pruners decide. Without a query nothing is pruned.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.arms.longcodezip import LongCodeZip
from pipeline.pruners.chunks import function_chunks
from pipeline.pruners.local_model import LocalModel, Models
from pipeline.pruners.ranking import decisions
from pipeline.views.kept_lines import BoolArray, IntArray, split_lines
from pipeline.views.policy import PruneRequest


def load(spec: LongCodeZip, models: Models) -> "LongCodeZipPruner":
    """Return the pruner of an arm's parameters."""
    return LongCodeZipPruner(spec, models(spec, "causal"))


class LongCodeZipPruner:
    """Keeps the functions after which the query surprises least."""

    def __init__(self, spec: LongCodeZip, model: LocalModel) -> None:
        self._spec, self._model = spec, model
        self._start = [model.start_id]
        self._window = model.window(spec.window_tokens)

    def prune(self, request: PruneRequest) -> list[bool] | None:
        """Return which lines stay."""
        lines = split_lines(request.text)
        chunks = function_chunks(lines, self._spec.chunk_lines)
        found = self._model.line_tokens(request.text)
        if request.query is None or found is None or len(chunks) < 2:
            return None
        # At most half of the window is the query's, its end.
        query_ids = self._model.tokens("\n\n" + request.query).ids[-(self._window // 2) :]
        gains = [-self._surprise_of(query_ids, "".join(lines[start:end])) for start, end in chunks]
        order = np.argsort(-np.asarray(gains), kind="stable")
        ranked = [chunks[i] for i in order]
        return decisions(within(ranked, found.lines.tokens_per_line, self._spec.rate))

    def _surprise_of(self, query_ids: Sequence[int], chunk: str) -> float:
        """Return the mean -log p of the query after the chunk, of which the end may be cut."""
        room = self._window - 1 - len(query_ids)
        ids = [*self._start, *self._model.tokens(chunk).ids[:room], *query_ids]
        return float(self._model.surprise(ids, len(query_ids)).mean())


def within(ranked: list[tuple[int, int]], costs: IntArray, rate: float) -> BoolArray:
    """Return the lines of the first chunks, in rank, until `rate` of all tokens is spent."""
    order = np.concatenate([np.arange(start, end) for start, end in ranked])
    spent_before = np.cumsum(costs[order]) - costs[order]
    kept = np.zeros(len(costs), dtype=bool)
    kept[order[spent_before < rate * float(costs.sum())]] = True
    return kept
