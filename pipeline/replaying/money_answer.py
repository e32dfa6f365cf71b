"""What replay answers first: sentences in money, and what they do not say."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pipeline.accounting.pricing import break_even_ratio
from pipeline.plural import plural
from pipeline.replaying.money import Reason, SessionCost
from pipeline.replaying.replay_report import REFERENCE, Priced, bill_of
from pipeline.spec.pricing import Pricing

RELATIVE = "input tokens"
"""The currency of a pricing that has ratios only."""
MANY_ARMS = 4
"""More arms than these are not all named in the sentence; the table has them."""

NOT_SAID = (
    "Not said: what the agent would have done with another view. Nothing is read again here, no"
    " step is added and no outcome changes; only a paired sweep shows that."
)


def amount(cost: float, currency: str) -> str:
    """Return a cost with its currency, to three digits where it is small."""
    if currency == RELATIVE:
        return f"what {cost:,.0f} uncached input tokens cost"
    digits = 2 if abs(cost) >= 1 or cost == 0 else 2 - math.floor(math.log10(abs(cost)))
    return f"{currency} {cost:,.{min(digits, 9)}f}"


def answer_lines(by_arm: Mapping[str, Sequence[Priced]], pricing: Pricing) -> Iterator[str]:
    """Yield the answer: what the sessions cost, what each arm would have billed, and why.

    Args:
        by_arm: every arm's replays, the reference's among them.
        pricing: what they were priced with.
    """
    reference = by_arm[REFERENCE]
    sessions = [r.session for r in reference]
    replayed = _total(reference)
    yield _cost_sentence(sessions, replayed, pricing)
    yield from _arm_sentences(by_arm, replayed, pricing)
    yield _idle_sentence(sessions, replayed, pricing)
    yield from _stand_in_sentences(sessions, pricing)
    yield NOT_SAID


def _cost_sentence(sessions: Sequence[SessionCost], replayed: float, pricing: Pricing) -> str:
    calls, known = sum(s.n_calls for s in sessions), sum(s.n_known for s in sessions)
    cost = math.fsum(s.cost for s in sessions)
    aside = math.fsum(s.aside_cost for s in sessions)
    of = f"{plural(len(sessions), 'session')} with {plural(calls, 'call')}{_dates(sessions)}"
    at = f"at the prices of {pricing.as_of} ({pricing.name}: {_lists(sessions)})"
    again = amount(replayed, pricing.currency)
    if not known:
        return f"The files hold no usage to tell a cost from. {of} cost {again} by replay, {at}."
    said = f"{of} cost {amount(cost, pricing.currency)} by their recorded usage, {at}"
    if known < calls:
        said += f"; that is of {known:,} calls, the others have no full usage"
    if aside:
        said += f"; of it {amount(aside, pricing.currency)} for calls beside the conversations"
    off = _off(cost - aside, replayed) if known == calls else ""
    return f"{said}. Replayed, the conversations cost {again}{off}."


def _off(recorded: float, replayed: float) -> str:
    return f" ({100 * (replayed / recorded - 1):+.1f}%)" if recorded else ""


def _arm_sentences(
    by_arm: Mapping[str, Sequence[Priced]], replayed: float, pricing: Pricing
) -> Iterator[str]:
    totals = {arm: _total(own) for arm, own in by_arm.items() if arm != REFERENCE}
    if not totals:
        yield (
            "No arm was asked for: add --arms observation_mask token_window cold_prune, say, to see"
            " what they would have billed."
        )
        return
    ranked = sorted(totals, key=totals.__getitem__)
    named = ranked if len(ranked) <= MANY_ARMS else [ranked[0], ranked[-1]]
    cheaper = sum(total < replayed for total in totals.values())
    bills = [
        f"{arm} would have billed {amount(totals[arm], pricing.currency)}"
        f"{_off(replayed, totals[arm])}"
        for arm in named
    ]
    whole = f"With the same behavior, {'; '.join(bills)}."
    if len(named) < len(ranked):
        whole += (
            f" {cheaper} of {len(ranked)} arms would have been cheaper; these are the extremes."
        )
    yield whole
    for arm in named:
        yield _break_even_sentence(arm, by_arm[arm], by_arm[REFERENCE], pricing)


def _break_even_sentence(
    arm: str, own: Sequence[Priced], reference: Sequence[Priced], pricing: Pricing
) -> str:
    """Return above or below which price of a cached token the arm pays."""
    if not any(r.row.n_edits for r in own):
        return f"{arm} did nothing in these sessions."
    bill, whole = bill_of(own), bill_of(reference)
    ratio = break_even_ratio(bill, whole)
    if ratio is None or not 0 <= ratio <= 1:
        at_half = bill.without_hits - whole.without_hits + 0.5 * (bill.hits - whole.hits)
        same = "cheaper" if at_half < 0 else "dearer" if at_half > 0 else "as dear"
        return f"{arm} is {same} at any price of a cached token."
    side = "above" if whole.hits > bill.hits else "below"
    names = {name for r in reference for name in r.session.lists}
    prices = pricing.lists.get(names.pop()) if len(names) == 1 else None
    if prices is None or not prices.input:
        return f"{arm} pays {side} {ratio:.3f} of the input price for a cached token."
    per_million = (
        ""
        if pricing.currency == RELATIVE
        else f" ({pricing.currency} {1e6 * ratio * prices.input:.3g} a million)"
    )
    return (
        f"{arm} pays where a cached token costs {side} {ratio:.3f} of an uncached one"
        f"{per_million}; here it costs {prices.cached / prices.input:.3g}."
    )


def _idle_sentence(sessions: Sequence[SessionCost], replayed: float, pricing: Pricing) -> str:
    lost = {reason: math.fsum(s.lost_to(reason) for s in sessions) for reason in Reason}
    n = {reason: sum(b.reason is reason for s in sessions for b in s.breaks) for reason in Reason}
    whole = math.fsum(s.cost - s.aside_cost for s in sessions) or replayed
    ttls = sorted(
        {
            pricing.lists[name].ttl_s or 0.0
            for s in sessions
            for name in s.lists
            if name in pricing.lists
        }
    )
    if not any(ttls):
        return (
            "The price list promises no time that a prefix is held, so idle gaps cost nothing"
            f" here; {amount(lost[Reason.UNKNOWN], pricing.currency)} went to cache reads that were"
            " expected and not recorded."
        )
    held = " or ".join(f"{ttl / 60:g} minutes" for ttl in ttls if ttl)
    return (
        f"{amount(lost[Reason.IDLE], pricing.currency)} ({_share(lost[Reason.IDLE], whole)}) was"
        f" lost to {plural(n[Reason.IDLE], 'gap')} longer than the {held} that a prefix is held;"
        f" {amount(lost[Reason.MODEL], pricing.currency)} to changes of the model,"
        f" {amount(lost[Reason.UNKNOWN], pricing.currency)}"
        f" ({_share(lost[Reason.UNKNOWN], whole)}) to misses that the files do not explain."
    )


def _stand_in_sentences(sessions: Sequence[SessionCost], pricing: Pricing) -> Iterator[str]:
    found = dict(pair for s in sessions for pair in s.stand_ins)
    if found and pricing.currency != RELATIVE:
        pairs = ", ".join(f"{model} as {name}" for model, name in sorted(found.items())[:6])
        yield (
            f"{pricing.name} has no prices of these models, and others stand in: {pairs}. --pricing"
            " takes another file, --prices LIST one list for all."
        )
    elif pricing.currency == RELATIVE:
        yield "These are ratios: --pricing anthropic|openai|deepseek|qwen gives money."


def _total(results: Sequence[Priced]) -> float:
    return math.fsum(r.row.cost_cached for r in results)


def _lists(sessions: Sequence[SessionCost]) -> str:
    return ", ".join(sorted({name for s in sessions for name in s.lists}))


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "no share"


def _dates(sessions: Sequence[SessionCost]) -> str:
    first = min((s.started_at for s in sessions if s.started_at is not None), default=None)
    last = max((s.finished_at for s in sessions if s.finished_at is not None), default=None)
    if first is None or last is None:
        return ""
    days = [datetime.fromtimestamp(t, UTC).date().isoformat() for t in (first, last)]
    return f" ({days[0]})" if days[0] == days[1] else f" ({days[0]} to {days[1]})"
