"""When a cut of the cached prefix pays (docs/methods.md, When a cut pays).

For a cut at position s: gain = K * p_c * D(s) - (p_w - p_c) * S(s), with K the calls to come,
D the tokens that every later call no longer sends, S the tokens that must be computed again once,
and p_w the price of writing them to the cache (the input price where a provider asks none of its
own). Where the prefix is cold they are computed again anyway, so S costs nothing extra and every
queued edit pays. Positions are in shown tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Prices of a token; only their ratios matter."""

    input: float
    cached: float
    output: float
    write: float | None = None
    """Of an input token that enters the cache; None: the input price."""

    @property
    def written(self) -> float:
        """Price of a token that enters the cache."""
        return self.input if self.write is None else self.write


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedEdit:
    """An output that is to be pruned once that pays."""

    number: int
    """The output's id."""
    position: int
    """Tokens of the view before it."""
    saved_tokens: int
    """Its tokens less the placeholder's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Applying all queued edits from some position on."""

    gain: float
    numbers: tuple[int, ...]


def best_cut(
    queued: Sequence[QueuedEdit],
    *,
    sent_tokens: int,
    calls_to_come: float,
    prices: Prices,
    block_tokens: int,
    cold: bool = False,
) -> Cut | None:
    """Return the cut with the largest gain, None where nothing is queued. The gain may be negative.

    Args:
        queued: edits that wait.
        sent_tokens: tokens of the view that a call has sent before; what was never sent is full
            price with or without the cut.
        calls_to_come: mean number of calls still to come.
        prices: of tokens.
        block_tokens: the prefix survives up to the last whole block before the cut.
        cold: the prefix was idle for longer than the cache holds it, so nothing of it survives.
    """
    best: Cut | None = None
    saved = 0
    numbers: list[int] = []
    for edit in sorted(queued, key=lambda q: q.position, reverse=True):
        saved += edit.saved_tokens
        numbers.append(edit.number)
        boundary = edit.position - edit.position % max(1, block_tokens)
        again = 0 if cold else max(0, sent_tokens - boundary - saved)
        gain = calls_to_come * prices.cached * saved - (prices.written - prices.cached) * again
        if best is None or gain > best.gain:
            best = Cut(gain=gain, numbers=tuple(sorted(numbers)))
    return best


def asking_cost(
    prices: Prices, *, context_tokens: int, listing_tokens: int, answer_tokens: float
) -> float:
    """Return what a cleanup call costs: the cached context, the listing and the answer."""
    return (
        prices.cached * context_tokens
        + prices.written * listing_tokens
        + prices.output * answer_tokens
    )


def lot_size(
    prices: Prices,
    *,
    again_tokens: float,
    growth_tokens: float,
    cleanup_tokens: float = 0.0,
    cold_share: float = 0.0,
) -> float:
    """Return how many removable tokens to let gather before a cut (docs/methods.md, Lot size).

    M = sqrt(2 b P (g + c) / a), the order quantity at which what the gathered tokens cost and what
    a cut costs are equal, with a = r (1 - l) + w l and b = (w - r)(1 - l).

    Args:
        prices: r, of a cached token, and w, of a written one.
        again_tokens: P, the tokens that a cut sends again.
        growth_tokens: g, the removable tokens that each call adds.
        cleanup_tokens: c, the tokens that cleaning up adds to each call.
        cold_share: l, the share of the gaps between calls that outlast the cache.
    """
    r, w, cold = prices.cached, prices.written, cold_share
    holding = r * (1 - cold) + w * cold
    cutting = max(0.0, w - r) * (1 - cold)
    if cutting == 0.0:
        return 0.0
    if holding == 0.0:
        return math.inf
    return math.sqrt(2 * cutting * again_tokens * (growth_tokens + cleanup_tokens) / holding)
