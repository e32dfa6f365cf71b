"""What recorded sessions cost, call by call, and where the cache of a session broke.

The cost is that of the recorded usage at list prices; what an arm would have cost comes from its
replay. A cache breaks where less was read from it than the replayed prefix of the same view; the
reason is the first of these that holds: another model, a gap longer than the time to live, none
that the recording shows.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.replaying.replay import Recording, Replayed, ReplayedCall, StepCall
from pipeline.spec.pricing import PriceList, Pricing, Tariff


class Reason(StrEnum):
    """Why a cache broke."""

    MODEL = "another model"
    IDLE = "idle beyond the time to live"
    UNKNOWN = "not in the recording"


@dataclass(frozen=True, kw_only=True, slots=True)
class Break:
    """A call that read less from the cache than its prefix."""

    call: int
    """Number of the call, from 0."""
    reason: Reason
    idle_s: float | None
    lost_tokens: int
    cost: float
    """Of computing and writing them again, above reading them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionCost:
    """What one recording cost."""

    n_calls: int
    """Billed here, those aside included."""
    n_known: int
    """Of these, with a usage that a cost can be told from."""
    cost: float
    """Of the known calls."""
    n_aside: int
    aside_cost: float
    """Of the known calls beside the conversation, which no arm changes; part of `cost`."""
    n_breaks_from_reads: int
    """Calls whose break is told from recorded reads and not from the time to live alone."""
    breaks: tuple[Break, ...]
    stand_ins: tuple[tuple[str, str], ...]
    """Models that the pricing does not name, each with the list that stands in."""
    lists: tuple[str, ...]
    started_at: float | None
    finished_at: float | None

    def lost_to(self, reason: Reason) -> float:
        """Return the cost of all breaks of one reason."""
        return math.fsum(b.cost for b in self.breaks if b.reason is reason)


@dataclass(slots=True)
class Tariffs:
    """The lists that a recording's calls are priced by."""

    pricing: Pricing
    chosen: str | None
    """Name of the list for all models; None: each by its own."""
    model: str | None
    """Of calls that do not name theirs."""
    for_hour: bool
    """Whether most of what the session wrote to the cache is kept for an hour."""
    _found: dict[str | None, Tariff] = field(default_factory=dict)

    def tariff(self, model: str | None) -> Tariff:
        """Return what a model's calls cost."""
        name = model or self.model
        if name not in self._found:
            self._found[name] = self.pricing.tariff_of(name, self.chosen)
        return self._found[name]

    def prices(self, model: str | None = None) -> PriceList:
        """Return the list that a model's replayed calls are priced by."""
        tariff = self.tariff(model)
        return tariff.hour if self.for_hour and tariff.hour else tariff.prices

    def flat(self, model: str | None = None) -> PriceList:
        """Return the same with every input token at its input price."""
        return self.pricing.lists.get("flat") or self.prices(model).at_ratio(1.0)

    @property
    def used(self) -> Iterator[tuple[str, Tariff]]:
        """The models met so far, each with its tariff."""
        return ((name or "no model named", tariff) for name, tariff in self._found.items())


def tariffs_of(recording: Recording, pricing: Pricing, chosen: str | None) -> Tariffs:
    """Return the lists for a recording: for an hour where most of its cache writes say so."""
    calls = (*recording.own_calls, *recording.aside)
    written = sum(call.written_tokens or 0 for call in calls)
    for_hour = sum(call.written_1h_tokens or 0 for call in calls)
    return Tariffs(
        pricing=pricing, chosen=chosen, model=recording.model, for_hour=2 * for_hour > written
    )


def session_cost(recording: Recording, reference: Replayed, tariffs: Tariffs) -> SessionCost:
    """Return what a recording cost, and where its cache broke.

    Args:
        recording: the session.
        reference: the arm that shows everything, replayed over it.
        tariffs: of its calls.
    """
    own, aside = _costs(recording.own_calls, tariffs), _costs(recording.aside, tariffs)
    known = [cost for cost in (*own, *aside) if cost is not None]
    steps = [call for call in reference.calls if call.kind == "step"]
    pairs = list(zip(recording.own_calls, steps, strict=True))
    times = [call.started_at for call in recording.own_calls if call.started_at is not None]
    return SessionCost(
        n_calls=len(own) + len(aside),
        n_known=len(known),
        cost=math.fsum(known),
        n_aside=len(aside),
        aside_cost=math.fsum(cost for cost in aside if cost is not None),
        n_breaks_from_reads=sum(call.cached_tokens is not None for call, _ in pairs),
        breaks=tuple(_breaks(pairs, tariffs)),
        stand_ins=tuple((m, t.prices.name) for m, t in tariffs.used if not t.is_of_model),
        lists=tuple(dict.fromkeys(tariffs.prices(m).name for m, _ in tariffs.used)),
        started_at=min(times, default=None),
        finished_at=max(times, default=None),
    )


def _costs(calls: Iterable[StepCall], tariffs: Tariffs) -> list[float | None]:
    return [recorded_cost(call, tariffs.tariff(call.model)) for call in calls]


def recorded_cost(call: StepCall, tariff: Tariff) -> float | None:
    """Return the cost of a call by its usage; None where that does not tell it."""
    if call.prompt_tokens is None or call.completion_tokens is None:
        return None
    if call.cached_tokens is None and not tariff.prices.is_flat:
        return None
    return tariff.recorded_cost(
        prompt=call.prompt_tokens,
        cached=call.cached_tokens or 0,
        completion=call.completion_tokens,
        written=call.written_tokens,
        written_1h=call.written_1h_tokens,
    )


def _breaks(pairs: Iterable[tuple[StepCall, ReplayedCall]], tariffs: Tariffs) -> Iterator[Break]:
    for number, (call, again) in enumerate(pairs):
        prices = tariffs.prices(call.model)
        prefix = again.cache.lcp_tokens
        if again.cache.lcp_block_tokens is not None:
            prefix = again.cache.lcp_block_tokens
        reason = _reason(again, prices)
        if call.cached_tokens is not None:
            lost = prefix - call.cached_tokens
        else:
            lost = 0 if reason is Reason.UNKNOWN else prefix
        if lost > 0:
            yield Break(
                call=number,
                reason=reason,
                idle_s=again.idle_s,
                lost_tokens=lost,
                cost=lost * (prices.written - prices.cached),
            )


def _reason(call: ReplayedCall, prices: PriceList) -> Reason:
    if call.is_other_model:
        return Reason.MODEL
    cold = prices.ttl_s is not None and call.idle_s is not None and call.idle_s > prices.ttl_s
    return Reason.IDLE if cold else Reason.UNKNOWN
