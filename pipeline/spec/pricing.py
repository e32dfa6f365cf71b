"""Price lists: what the tokens of a call cost, for `analyze` and `replay` alike.

See docs/methods.md, Cost.

A pricing is a dated YAML file of conf/pricing with one list or more. An input token is *cached*
(its prefix was held), *written* (it enters the cache), or neither. Providers bill the three
differently, hold a prefix only from a minimum length on, and forget it when it was idle for longer
than its time to live. Flat lists bill every input token alike.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

RATIO_SWEEP = (0.02, 0.1, 0.2, 0.4, 1.0)
"""Cached price over input price, where a pricing does not say otherwise."""

_VERSION = r"(_latest|_1m|_\d{8}|_\d{4}(_\d\d){0,2})*"
"""What may stand behind a model's name: a date, or the length of its window."""

Number = TypeVar("Number")
"""A number, or an array of numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Prices of one provider's model on one day, per token."""

    name: str
    input: float = 1.0
    """Of an input token that is neither cached nor written."""
    cached: float = 1.0
    output: float = 5.0
    write: float | None = None
    """Of an input token that enters the cache; None: the input price."""
    min_prefix: int = 0
    """A shorter prefix is neither written nor found."""
    ttl_s: float | None = None
    """Idle seconds after which a prefix is cold; None: it is held as long as a run lasts."""

    @property
    def written(self) -> float:
        """Price of a token that enters the cache."""
        return self.input if self.write is None else self.write

    @property
    def is_flat(self) -> bool:
        """True where a cache makes no difference, so that nothing about it need be known."""
        return self.cached == self.input == self.written

    def cacheable(self, prompt_tokens: int) -> int:
        """Return the tokens of a call's prompt that a cache takes part in: all or none."""
        return prompt_tokens if prompt_tokens >= max(1, self.min_prefix) else 0

    def hit(self, cached_tokens: int, *, prompt_tokens: int, idle_s: float | None = None) -> int:
        """Return the tokens of a call that are billed as cached.

        Args:
            cached_tokens: of the prefix that a cache without limits would hold.
            prompt_tokens: of the call; more than these are never cached.
            idle_s: since the run's last call ended; None where that is unknown, which is no reason
                to take a prefix for cold.
        """
        cold = self.ttl_s is not None and idle_s is not None and idle_s > self.ttl_s
        found = min(cached_tokens, prompt_tokens)
        return 0 if cold or found < self.min_prefix else max(found, 0)

    def cost(self, *, prompt: Number, cacheable: Number, cached: Number, completion: Number) -> Any:
        """Return the cost of token sums, of one call or of many; arrays give arrays.

        Args:
            prompt: prompt tokens.
            cacheable: those of calls that are long enough for the cache.
            cached: those that were hits, all of them cacheable.
            completion: completion tokens.
        """
        values: Any = (prompt, cacheable, cached, completion)
        p, w, c, o = values
        return self.cached * c + self.written * (w - c) + self.input * (p - w) + self.output * o

    def call_cost(
        self,
        *,
        prompt_tokens: int,
        cached_tokens: int,
        completion_tokens: int,
        idle_s: float | None = None,
    ) -> float:
        """Return the cost of one call; `hit` says what of its cached tokens counts."""
        return float(
            self.cost(
                prompt=prompt_tokens,
                cacheable=self.cacheable(prompt_tokens),
                cached=self.hit(cached_tokens, prompt_tokens=prompt_tokens, idle_s=idle_s),
                completion=completion_tokens,
            )
        )

    def at_ratio(self, ratio: float) -> "PriceList":
        """Return the list with hits at `ratio` of the input price, and writes at that price."""
        return replace(self, cached=ratio * self.input, write=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pricing:
    """Every list that a sweep is priced with."""

    name: str
    as_of: str
    currency: str
    lists: Mapping[str, PriceList]
    ratio_sweep: tuple[float, ...] = RATIO_SWEEP
    gpu_hour: float | None = None
    """Price of an hour of one GPU in `currency`."""

    @property
    def primary(self) -> PriceList:
        """The first list."""
        return next(iter(self.lists.values()))

    @property
    def flat(self) -> PriceList:
        """The list `flat`, or the first list with every input token at its input price."""
        flat = self.lists.get("flat")
        first = self.primary
        return flat or PriceList(
            name="flat", input=first.input, cached=first.input, output=first.output
        )

    @property
    def caching(self) -> PriceList:
        """The list `caching`, or the first one under which a hit is cheaper."""
        named = self.lists.get("caching")
        cheaper = (prices for prices in self.lists.values() if prices.cached < prices.input)
        return named or next(cheaper, self.flat.at_ratio(0.1))

    def tariff_of(self, model: str | None, chosen: str | None = None) -> "Tariff":
        """Return what a model's calls cost.

        Args:
            model: as a recording names it: a provider before it and a date behind it do not count.
            chosen: name of the list for all models; None: the model's own, else `caching`.
        """
        if chosen is not None:
            return Tariff(prices=self.lists[chosen], hour=self._hour_of(chosen))
        slug = re.sub(r"[^a-z0-9]+", "_", (model or "").rpartition("/")[2].lower()).strip("_")
        for name, prices in self.lists.items():
            base = re.escape(name.removesuffix(_SHORT))
            if not name.endswith(_HOUR) and re.fullmatch(base + _VERSION, slug):
                return Tariff(prices=prices, hour=self._hour_of(name))
        caching = self.caching
        return Tariff(prices=caching, hour=self._hour_of(caching.name), is_of_model=False)

    def _hour_of(self, name: str) -> PriceList | None:
        return self.lists.get(name.removesuffix(_SHORT) + _HOUR) if name.endswith(_SHORT) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tariff:
    """What one model costs: its list, and the one for prefixes that are kept for an hour."""

    prices: PriceList
    hour: PriceList | None = None
    """None: the provider sells no second time, or the list is for an hour itself."""
    is_of_model: bool = True
    """False: the pricing does not name the model, and a stand-in is used."""

    def recorded_cost(
        self,
        *,
        prompt: int,
        cached: int,
        completion: int,
        written: int | None = None,
        written_1h: int | None = None,
    ) -> float:
        """Return what a call cost by its recorded usage (docs/methods.md, Cost).

        Args:
            prompt: all input tokens.
            cached: those read from the cache.
            completion: output tokens.
            written: input tokens that entered the cache; None: all that was no hit.
            written_1h: of these, those that are kept for an hour; None: none.
        """
        here = self.prices
        cached = min(cached, prompt)
        rest = prompt - cached
        if written is None:
            written = rest if here.cacheable(prompt) else 0
        written = min(written, rest)
        for_hour = min(written_1h or 0, written) if self.hour else 0
        return (
            here.cached * cached
            + here.written * (written - for_hour)
            + (self.hour or here).written * for_hour
            + here.input * (rest - written)
            + here.output * completion
        )


_SHORT, _HOUR = "_5m", "_1h"
"""How the names of two lists of one model end."""


def pricing_from(data: Mapping[str, Any]) -> Pricing:
    """Return the pricing of a YAML file or a lock; the default relative lists where it is empty.

    Raises:
        ValueError: a list lacks a price, or has one that is no number of zero or more.
    """
    per = float(data.get("per_tokens", 1))
    given = data.get("lists") or {}
    if not isinstance(given, Mapping):
        raise ValueError("`lists` of a pricing maps names to prices (conf/pricing)")  # noqa: TRY004
    lists = {str(name): _list(str(name), prices, per) for name, prices in given.items()}
    if not lists:
        lists = {
            "flat": PriceList(name="flat"),
            "caching": PriceList(name="caching", cached=0.1),
        }
    return Pricing(
        name=str(data.get("name", "relative")),
        as_of=str(data.get("as_of", "no date: ratios only")),
        currency=str(data.get("currency", "input tokens")),
        lists=lists,
        ratio_sweep=tuple(float(r) for r in data.get("sweep") or RATIO_SWEEP),
        gpu_hour=None if data.get("gpu_hour") is None else float(data["gpu_hour"]),
    )


_REQUIRED = ("input", "cached", "output")


def _list(name: str, prices: Mapping[str, Any], per: float) -> PriceList:
    missing = [key for key in _REQUIRED if prices.get(key) is None]
    if missing:
        raise ValueError(f"price list {name} has no {', '.join(missing)} (conf/pricing)")
    unknown = set(prices) - {*_REQUIRED, "write", "min_prefix", "ttl_s"}
    if unknown:
        raise ValueError(
            f"price list {name} has {', '.join(sorted(unknown))}; known keys: input, cached,"
            " output, write, min_prefix, ttl_s (conf/pricing)"
        )
    numbers = {key: float(value) for key, value in prices.items() if value is not None}
    wrong = [key for key, value in numbers.items() if not (math.isfinite(value) and value >= 0)]
    if wrong:
        raise ValueError(
            f"price list {name}: {', '.join(wrong)} must be numbers of zero or more (conf/pricing)"
        )
    return PriceList(
        name=name,
        input=numbers["input"] / per,
        cached=numbers["cached"] / per,
        output=numbers["output"] / per,
        write=numbers["write"] / per if "write" in numbers else None,
        min_prefix=int(numbers.get("min_prefix", 0)),
        ttl_s=numbers.get("ttl_s"),
    )
