"""The cheapest moments at which the outputs of a finished run could have been removed.

See docs/methods.md, Cheapest schedule.

A schedule says for every output from which call on a placeholder stands in its place, if ever. With
the run before us it is known what each choice costs: an output that stays is read again by every
call, and a cut sends all that stands behind it again. A cut removes everything behind it that the
model has seen, since that makes it only cheaper. So the cost of a cut does not depend on the cuts
before it, and the best of all schedules is found without trying them: output by output from the
last, over all pairs of moments between which nothing before it is cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.accounting.break_even import Prices

FloatArray = NDArray[np.float64]

MAX_CALLS = 150
"""Longer runs are better left out: the search takes half a second at so many, and eight times as
long at twice as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Removable:
    """An output that a placeholder could stand for."""

    first_call: int
    """The first call that shows it."""
    from_call: int
    """The first call that may show the placeholder instead, after `first_call`."""
    before_tokens: int
    """Tokens of the history before it, nothing removed."""
    saved_tokens: int
    """Its tokens less the placeholder's, above 0."""


def best_schedule(
    outputs: Sequence[Removable],
    sent_tokens: Sequence[int],
    prices: Prices,
    *,
    cold: Sequence[bool] = (),
) -> tuple[int | None, ...]:
    """Return for each output the call from which on it is best removed; None: it stays.

    Args:
        outputs: in the order of the history.
        sent_tokens: for each call, the tokens of its history, nothing removed, that calls before it
            sent or received, so that they can be hits.
        prices: of tokens. Where writes are cheaper than reads, they count as equal.
        cold: for each call, whether the cache had lost the prefix; empty: it never had.
    """
    n_calls = len(sent_tokens)
    reads, again = _prices_by_call(prices, n_calls, cold)
    read_upto = np.concatenate(([0.0], np.cumsum(reads)))
    sent = np.array(sent_tokens, dtype=np.float64)
    best = np.zeros((n_calls + 1, n_calls + 1))
    """Cost of the outputs so far between two moments: the start or a cut, and a cut or the end."""
    removed = np.zeros(n_calls)
    choices: list[NDArray[np.int64]] = []
    for output in reversed(outputs):
        since = min(output.from_call, n_calls)
        removed[since:] += output.saved_tokens
        cut = again * np.maximum(0.0, sent - output.before_tokens - removed)
        # From a cut before `since` the output is held until the next; a later cut has taken it.
        held_from = read_upto[np.maximum(np.arange(since), output.first_call + 1)]
        held = output.saved_tokens * np.maximum(0.0, read_upto[None, :] - held_from[:, None])
        best[:since] += held
        until, after = best[:since, since:].copy(), best[since:, since:]
        choice = np.full(until.shape, -1)
        for at in range(n_calls - since):
            through = until[:, [at]] + cut[since + at] + after[at, at + 1 :]
            cheaper = through < best[:since, since + at + 1 :] - 1e-9
            np.copyto(best[:since, since + at + 1 :], through, where=cheaper)
            choice[:, at + 1 :][cheaper] = since + at
        choices.append(choice)
    cuts = list(_cuts(outputs, choices[::-1], n_calls))
    return tuple(
        min((c for c, first in cuts if first <= number and c >= output.from_call), default=None)
        for number, output in enumerate(outputs)
    )


def schedule_cost(
    outputs: Sequence[Removable],
    sent_tokens: Sequence[int],
    prices: Prices,
    schedule: Sequence[int | None],
    *,
    cold: Sequence[bool] = (),
) -> float:
    """Return the part of a run's cost that depends on its schedule: what is held, and the cuts.

    Args:
        outputs: as `best_schedule` takes them, like `sent_tokens`, `prices` and `cold`.
        sent_tokens: see there.
        prices: see there.
        schedule: for each output, the call from which on it is gone.
        cold: see there.
    """
    reads, again = _prices_by_call(prices, len(sent_tokens), cold)
    gone_at = [len(sent_tokens) if call is None else call for call in schedule]
    total = 0.0
    for output, end in zip(outputs, gone_at, strict=True):
        total += output.saved_tokens * float(reads[output.first_call + 1 : end].sum())
    for call in {call for call in schedule if call is not None}:
        first = gone_at.index(call)
        behind = zip(outputs[first:], gone_at[first:], strict=True)
        gone = sum(output.saved_tokens for output, end in behind if end <= call)
        stays = sent_tokens[call] - outputs[first].before_tokens - gone
        total += float(again[call]) * max(0, stays)
    return total


def _prices_by_call(
    prices: Prices, n_calls: int, cold: Sequence[bool]
) -> tuple[FloatArray, FloatArray]:
    """Return what a held token costs in each call, and what one costs more that is sent again."""
    lost = np.array(cold, dtype=bool) if cold else np.zeros(n_calls, dtype=bool)
    write = max(prices.written, prices.cached)
    # Where the prefix is lost, everything is sent again anyway.
    return np.where(lost, write, prices.cached), np.where(lost, 0.0, write - prices.cached)


def _cuts(
    outputs: Sequence[Removable], choices: Sequence[NDArray[np.int64]], n_calls: int
) -> Iterator[tuple[int, int]]:
    """Yield the chosen cuts: the call, and the first output that it removes."""
    spans = [(0, 0, n_calls)]
    while spans:
        number, start, end = spans.pop()
        if number == len(outputs):
            continue
        since = min(outputs[number].from_call, n_calls)
        call = int(choices[number][start, end - since]) if start < since <= end else -1
        if call < 0:
            spans.append((number + 1, start, end))
            continue
        yield call, number
        spans += [(number + 1, start, call), (number + 1, call, end)]
