"""Replayed arms as sums: the row of one trajectory under one arm, and the table of all.

Costs are summed call by call, since a short cached prefix may be billed in full. Text only; where
it goes is the command's choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.accounting.pricing import Bill, break_even_ratio
from pipeline.replaying.price_regret import MAX_CALLS
from pipeline.replaying.replay import Replayed, ReplayedCall, ReplaySettings
from pipeline.spec.pricing import PriceList

REFERENCE = "full_history"
NOTICE = (
    "evidence: replay. The recorded behaviour is held fixed; what the agent would have done with"
    " another view is not predicted."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One trajectory under one arm: the object that `--json` prints."""

    instance_id: str
    arm: str
    n_calls: int
    prompt_tokens: int
    peak_context_tokens: int
    new_tokens: int
    rebilled_tokens: int
    cached_prefix_tokens: int
    cached_block_tokens: int
    cached_spliced_tokens: int
    cost_flat: float
    cost_cached: float
    cost_spliced: float
    cost_cheapest: float | None
    """Of the cheapest schedule of removals; None: too many calls."""
    cost_retimed: float | None
    """Of the arm's own removals at their cheapest moments; None: it does more than remove."""
    n_edits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """A row, and what the table needs beside it."""

    row: Row
    bill: Bill
    stand_ins: int


def priced(
    result: Replayed,
    flat: PriceList,
    caching: PriceList,
    *,
    cheapest: Replayed | None = None,
    retimed: Replayed | None = None,
) -> Priced:
    """Return the sums of a replayed arm, beside those of the cheapest schedules."""
    calls = [(c.cache, c.completion_tokens) for c in result.calls]
    prompts = [cache.prompt_tokens for cache, _ in calls]
    bill = Bill(
        prompt_tokens=sum(prompts),
        cached_tokens=sum(cache.lcp_block_tokens or 0 for cache, _ in calls),
        completion_tokens=sum(out for _, out in calls),
    )
    row = Row(
        instance_id=result.instance_id,
        arm=result.arm,
        n_calls=len(calls),
        prompt_tokens=bill.prompt_tokens,
        peak_context_tokens=max(prompts, default=0),
        new_tokens=sum(cache.new_tokens for cache, _ in calls),
        rebilled_tokens=sum(cache.rebilled_tokens for cache, _ in calls),
        cached_prefix_tokens=sum(cache.lcp_tokens for cache, _ in calls),
        cached_block_tokens=bill.cached_tokens,
        cached_spliced_tokens=sum(cache.spliced_tokens for cache, _ in calls),
        cost_flat=cost(result, flat),
        cost_cached=cost(result, caching),
        cost_spliced=sum(_cost(caching, call, call.cache.spliced_tokens) for call in result.calls),
        cost_cheapest=None if cheapest is None else cost(cheapest, caching),
        cost_retimed=None if retimed is None else cost(retimed, caching),
        n_edits=len(result.edits),
    )
    return Priced(row=row, bill=bill, stand_ins=result.stand_ins)


def cost(result: Replayed, prices: PriceList) -> float:
    """Return the cost of all calls, hits counted in whole blocks."""
    return sum(_cost(prices, call, call.cache.lcp_block_tokens or 0) for call in result.calls)


def _cost(prices: PriceList, call: ReplayedCall, hits: int) -> float:
    return prices.call_cost(
        prompt_tokens=call.cache.prompt_tokens,
        cached_tokens=hits,
        completion_tokens=call.completion_tokens,
        idle_s=call.idle_s,
    )


def call_objects(result: Replayed) -> Iterator[dict[str, Any]]:
    """Yield one object a call, with its tokens and how its prompt divides."""
    for number, call in enumerate(result.calls):
        yield {
            "instance_id": result.instance_id,
            "arm": result.arm,
            "call_index": number,
            "kind": call.kind,
            **asdict(call.cache),
            "completion_tokens": call.completion_tokens,
        }


def table_lines(
    results: Sequence[Priced], caching: PriceList, settings: ReplaySettings
) -> Iterator[str]:
    """Yield the table of all arms: sums over runs, the median peak, ratios to `full_history`."""
    by_arm: dict[str, list[Priced]] = {}
    for result in results:
        by_arm.setdefault(result.row.arm, []).append(result)
    reference = by_arm.get(REFERENCE)
    instances = len({r.row.instance_id for r in results})
    runs = len(results) // max(1, len(by_arm))
    yield NOTICE
    yield f"{instances} instances, {runs} runs. Ratios are to {REFERENCE}" + (
        "." if reference else ", which was not asked for: add it to --arms."
    )
    head = (
        *("prompt", "peak", "new", "rebilled", "cached", "flat", "caching", "spliced"),
        *("break-even", "price regret", "timing", "edits"),
    )
    yield f"{'arm':34}" + "".join(f"{name:>13}" for name in head)
    for name, own in by_arm.items():
        yield f"{name:34}" + "".join(f"{cell:>13}" for cell in _cells(own, reference, caching))
    yield (
        "flat, caching: cost where a cached token costs as much as an uncached one, and where it"
        f" costs {caching.cached / caching.input:g} of it; spliced: the same if the server kept the"
        " keys of all text that stays, wherever it moves, which none does. Break-even: the price"
        " of a cached token, in uncached ones, at which the arm costs what the reference does; -:"
        " none from 0 to 1."
    )
    yield (
        "Price regret: what the arm costs above the cheapest schedule of removals in hindsight, at"
        " the caching prices, in costs of full_history; timing: the part that its own removals"
        " would have saved if made later, or never, whichever is cheapest. The schedules know the"
        " end, and not what the agent still needed. Runs of more than"
        f" {MAX_CALLS} calls are left out. -: the arm does more than put placeholders where outputs"
        " were shown."
    )
    stand_ins = sum(r.stand_ins for r in results)
    if stand_ins:
        yield (
            f"{stand_ins} answers were not recorded: cleanups prune by the rule"
            f" `{settings.cleanup_choice}` and write {settings.lengths.cleanup_tokens} tokens,"
            f" summaries {settings.lengths.summary_tokens}. Without a recorded plan a cleanup comes"
            f" every {settings.cleanup_every} turns. `none` and `all` bound what a choice can do."
        )


def _cells(
    own: Sequence[Priced], reference: Sequence[Priced] | None, caching: PriceList
) -> Iterator[str]:
    peaks = sorted(r.row.peak_context_tokens for r in own)
    yield f"{_sum(own, 'prompt_tokens'):,.0f}"
    yield f"{peaks[len(peaks) // 2]:,}"
    for key in ("new_tokens", "rebilled_tokens", "cached_block_tokens"):
        yield f"{_sum(own, key):,.0f}"
    for key in ("cost_flat", "cost_cached", "cost_spliced"):
        # Over the cache as it is: what splicing saves shows in the reference too.
        of = "cost_flat" if key == "cost_flat" else "cost_cached"
        base = _sum(reference, of) if reference else 0.0
        yield f"{_sum(own, key) / base:.3f}" if base else "-"
    even = reference and break_even_ratio(
        _bill(own), _bill(reference), output_price=caching.output / caching.input
    )
    yield "-" if not even or not 0 <= even <= 1 else f"{even:.3f}"
    yield from _regrets(own, reference)
    yield f"{_sum(own, 'n_edits'):,.0f}"


def _regrets(own: Sequence[Priced], reference: Sequence[Priced] | None) -> Iterator[str]:
    """Yield the cost above the cheapest schedule, and above the arm's own removals retimed."""
    pairs = zip((r.row for r in own), (r.row.cost_cached for r in reference or ()), strict=False)
    known = [(row, whole) for row, whole in pairs if row.cost_cheapest is not None]
    base = sum(whole for _, whole in known)
    for key in ("cost_cheapest", "cost_retimed"):
        costs = [getattr(row, key) for row, _ in known if row.cost_retimed is not None]
        above = sum(row.cost_cached for row, _ in known) - sum(costs)
        yield f"{above / base:.3f}" if base and len(costs) == len(known) else "-"


def _sum(results: Sequence[Priced], key: str) -> float:
    return float(sum(getattr(r.row, key) for r in results))


def _bill(results: Sequence[Priced]) -> Bill:
    return Bill(
        prompt_tokens=sum(r.bill.prompt_tokens for r in results),
        cached_tokens=sum(r.bill.cached_tokens for r in results),
        completion_tokens=sum(r.bill.completion_tokens for r in results),
    )
