"""Replayed arms as sums: the row of one trajectory under one arm, and the table of all.

Costs are summed call by call, since a short cached prefix may be billed in full. Text only; where
it goes is the command's choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.accounting.best_schedule import MAX_CALLS
from pipeline.accounting.pricing import Bill, break_even_ratio
from pipeline.plural import plural
from pipeline.replaying.money import Reason, SessionCost, Tariffs
from pipeline.replaying.replay import Replayed, ReplayedCall, ReplaySettings
from pipeline.spec.pricing import PriceList

REFERENCE = "full_history"
NOTICE = (
    "evidence: replay. The recorded behavior is held fixed; what the agent would have done with"
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
    cost_recorded: float | None
    """Of the recorded usage, calls aside included; None: not of all calls is it known."""
    cost_idle: float
    """Of what the recording lost to gaps longer than the time to live."""
    prices: str
    """The lists that the costs are of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """A row, and what the table and the answer need beside it."""

    row: Row
    bill: Bill
    stand_ins: int
    session: SessionCost


def priced(
    result: Replayed,
    tariffs: Tariffs,
    session: SessionCost,
    *,
    cheapest: Replayed | None = None,
    retimed: Replayed | None = None,
) -> Priced:
    """Return the sums of a replayed arm, beside those of the cheapest schedules.

    Args:
        result: the arm.
        tariffs: of the recording's calls.
        session: what the recording cost.
        cheapest: the cheapest schedule of removals on the recording.
        retimed: the cheapest of the arm's own.
    """
    prompts = [call.cache.prompt_tokens for call in result.calls]
    row = Row(
        instance_id=result.instance_id,
        arm=result.arm,
        n_calls=len(prompts),
        prompt_tokens=sum(prompts),
        peak_context_tokens=max(prompts, default=0),
        new_tokens=sum(call.cache.new_tokens for call in result.calls),
        rebilled_tokens=sum(call.cache.rebilled_tokens for call in result.calls),
        cached_prefix_tokens=sum(call.cache.lcp_tokens for call in result.calls),
        cached_block_tokens=sum(_in_blocks(call) for call in result.calls),
        cached_spliced_tokens=sum(call.cache.spliced_tokens for call in result.calls),
        cost_flat=sum(_cost(tariffs.flat(c.model), c, _in_blocks(c)) for c in result.calls),
        cost_cached=cost(result, tariffs),
        cost_spliced=sum(
            _cost(tariffs.prices(call.model), call, call.cache.spliced_tokens)
            for call in result.calls
        ),
        cost_cheapest=None if cheapest is None else cost(cheapest, tariffs),
        cost_retimed=None if retimed is None else cost(retimed, tariffs),
        n_edits=len(result.edits),
        cost_recorded=session.cost if session.n_known == session.n_calls else None,
        cost_idle=session.lost_to(Reason.IDLE),
        prices=", ".join(session.lists),
    )
    return Priced(
        row=row,
        bill=Bill(
            without_hits=sum(
                _cost(replace(tariffs.prices(c.model), cached=0.0), c, _in_blocks(c))
                for c in result.calls
            ),
            hits=sum(
                tariffs.prices(c.model).input * _hits(tariffs.prices(c.model), c, _in_blocks(c))
                for c in result.calls
            ),
        ),
        stand_ins=result.stand_ins,
        session=session,
    )


def cost(result: Replayed, tariffs: Tariffs) -> float:
    """Return the cost of all calls, hits counted in whole blocks."""
    return sum(call_cost(call, tariffs) for call in result.calls)


def call_cost(call: ReplayedCall, tariffs: Tariffs) -> float:
    """Return the cost of one call, hits counted in whole blocks."""
    return _cost(tariffs.prices(call.model), call, _in_blocks(call))


def _in_blocks(call: ReplayedCall) -> int:
    return call.cache.lcp_block_tokens or 0


def _hits(prices: PriceList, call: ReplayedCall, prefix: int) -> int:
    return prices.hit(
        0 if call.is_other_model else prefix,
        prompt_tokens=call.cache.prompt_tokens,
        idle_s=call.idle_s,
    )


def _cost(prices: PriceList, call: ReplayedCall, prefix: int) -> float:
    return prices.call_cost(
        prompt_tokens=call.cache.prompt_tokens,
        cached_tokens=_hits(prices, call, prefix),
        completion_tokens=call.completion_tokens,
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


def table_lines(by_arm: Mapping[str, Sequence[Priced]], settings: ReplaySettings) -> Iterator[str]:
    """Yield the table of all arms: sums over runs, the median peak, ratios to `full_history`."""
    reference = by_arm[REFERENCE]
    instances = len({r.row.instance_id for r in reference})
    lists = ", ".join(dict.fromkeys(name for r in reference for name in r.session.lists))
    yield NOTICE
    runs = plural(len(reference), "run")
    yield f"{plural(instances, 'instance')}, {runs}. Ratios are to {REFERENCE}."
    head = (
        *("prompt", "peak", "new", "rebilled", "cached", "flat", "caching", "spliced"),
        *("break-even", "price regret", "timing", "edits"),
    )
    yield f"{'arm':34}" + "".join(f"{name:>13}" for name in head)
    for name, own in by_arm.items():
        yield f"{name:34}" + "".join(f"{cell:>13}" for cell in _cells(own, reference))
    yield (
        "flat, caching: cost where a cached token costs as much as an uncached one, and at the"
        f" prices of {lists}; spliced: the same if the server kept the keys of all text that stays,"
        " wherever it moves, which none does. Break-even: the price of a cached token, in uncached"
        " ones, at which the arm costs what the reference does; -: none from 0 to 1."
    )
    yield (
        "Price regret: what the arm costs above the cheapest schedule of removals in hindsight, at"
        " the caching prices, in costs of full_history; timing: the part that its own removals"
        " would have saved if made later, or never, whichever is cheapest. The schedules know the"
        " end, and not what the agent still needed. Runs of more than"
        f" {MAX_CALLS} calls are left out. -: the arm does more than put placeholders where outputs"
        " were shown."
    )
    stand_ins = sum(r.stand_ins for own in by_arm.values() for r in own)
    if stand_ins:
        yield (
            f"{stand_ins} answers were not recorded: cleanups prune by the rule"
            f" `{settings.cleanup_choice}` and write {settings.lengths.cleanup_tokens} tokens,"
            f" summaries {settings.lengths.summary_tokens}. Without a recorded plan a cleanup comes"
            f" every {settings.cleanup_every} turns. `none` and `all` bound what a choice can do."
        )


def _cells(own: Sequence[Priced], reference: Sequence[Priced]) -> Iterator[str]:
    peaks = sorted(r.row.peak_context_tokens for r in own)
    yield f"{_sum(own, 'prompt_tokens'):,.0f}"
    yield f"{peaks[len(peaks) // 2]:,}"
    for key in ("new_tokens", "rebilled_tokens", "cached_block_tokens"):
        yield f"{_sum(own, key):,.0f}"
    for key in ("cost_flat", "cost_cached", "cost_spliced"):
        # Over the cache as it is: what splicing saves shows in the reference too.
        of = "cost_flat" if key == "cost_flat" else "cost_cached"
        base = _sum(reference, of)
        yield f"{_sum(own, key) / base:.3f}" if base else "-"
    even = break_even_ratio(bill_of(own), bill_of(reference))
    yield "-" if even is None or not 0 <= even <= 1 else f"{even:.3f}"
    yield from _regrets(own, reference)
    yield f"{_sum(own, 'n_edits'):,.0f}"


def _regrets(own: Sequence[Priced], reference: Sequence[Priced]) -> Iterator[str]:
    """Yield the cost above the cheapest schedule, and above the arm's own removals retimed."""
    pairs = zip((r.row for r in own), (r.row.cost_cached for r in reference), strict=False)
    known = [(row, whole) for row, whole in pairs if row.cost_cheapest is not None]
    base = sum(whole for _, whole in known)
    for key in ("cost_cheapest", "cost_retimed"):
        costs = [getattr(row, key) for row, _ in known if row.cost_retimed is not None]
        above = sum(row.cost_cached for row, _ in known) - sum(costs)
        yield f"{above / base:.3f}" if base and len(costs) == len(known) else "-"


def _sum(results: Sequence[Priced], key: str) -> float:
    return float(sum(getattr(r.row, key) for r in results))


def bill_of(results: Sequence[Priced]) -> Bill:
    """Return the bills of several recordings as one."""
    return Bill(
        without_hits=sum(r.bill.without_hits for r in results),
        hits=sum(r.bill.hits for r in results),
    )
