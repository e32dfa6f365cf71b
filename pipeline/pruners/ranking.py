"""From scores to lines: which lines stay for a token budget, and in which pieces a text is read.

Pure. Methods that decide tokens decide lines here: a line is worth the mean over its tokens, and
the best lines stay until the budget is spent, shown in their order (docs/methods.md, Line pruners).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.views.kept_lines import BoolArray, FloatArray, IntArray, TokenLines


def line_means(scores: FloatArray, lines: TokenLines) -> FloatArray:
    """Return the mean score of each line's tokens; NaN for a line without tokens.

    A token that reaches over a newline counts on every line it touches.
    """
    sums = np.zeros(lines.n_lines + 1)
    np.add.at(sums, lines.first, scores)
    np.add.at(sums, lines.last + 1, -scores)
    counts = lines.tokens_per_line
    totals = np.cumsum(sums)[: lines.n_lines]
    means: FloatArray = np.full(lines.n_lines, math.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def best_within(values: FloatArray, costs: IntArray, rate: float) -> BoolArray:
    """Return the lines that stay: best first, until `rate` of all tokens is spent.

    The line that reaches the budget stays too, so that the best one always does and the budget is
    passed by less than one line. Ties go to the earlier line; NaN comes last.

    Args:
        values: what each line is worth.
        costs: tokens of each line.
        rate: share of the tokens that stays; 0 keeps nothing.
    """
    budget = rate * float(costs.sum())
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    spent_before = np.concatenate(([0.0], np.cumsum(costs[order])[:-1].astype(np.float64)))
    kept = np.zeros(len(values), dtype=bool)
    kept[order[spent_before < budget]] = True
    return kept & ~np.isnan(values)


def decisions(kept: BoolArray) -> list[bool]:
    """Return one plain truth value a line."""
    return [bool(stays) for stays in kept]


def spans_of_lines(first_lines: IntArray, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces in which tokens are read: at most `limit`, cut at line ends where possible.

    Args:
        first_lines: the line on which each token begins, in order.
        limit: most tokens of a piece.
    """
    start, n_tokens = 0, len(first_lines)
    while start < n_tokens:
        end = min(start + limit, n_tokens)
        if end < n_tokens:
            line_start = int(np.searchsorted(first_lines, first_lines[end], side="left"))
            # A line longer than a piece is cut where the piece ends.
            end = line_start if line_start > start else end
        yield start, end
        start = end


def overlapping(n_tokens: int, limit: int, overlap: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, first new token, end) of pieces that overlap, so that each token has a past."""
    fresh = 0
    while fresh < n_tokens:
        start = max(0, fresh - overlap)
        end = min(start + limit, n_tokens)
        yield start, fresh, end
        fresh = end


def line_windows(n_lines: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Return windows of `size` lines that share `overlap`; the last one may be shorter."""
    starts = range(0, max(1, n_lines - overlap), size - overlap)
    return [(start, min(start + size, n_lines)) for start in starts]


def covered(windows: Sequence[tuple[int, int]], n_lines: int) -> BoolArray:
    """Return which lines are in any of the windows."""
    kept = np.zeros(n_lines, dtype=bool)
    for start, end in windows:
        kept[start:end] = True
    return kept
