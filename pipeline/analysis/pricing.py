"""Price lists: what a token costs under which view of the cache.

Lists are dated YAML (conf/pricing). Flat pricing bills every input token alike; caching pricing
bills a cached prefix at `cached`. Only ratios matter for comparing arms, so the default list is in
units of one uncached input token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RATIO_SWEEP = (0.02, 0.1, 0.2, 0.4, 1.0)
"""Cached price over input price, where a list does not say otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Prices of one provider on one day, per token."""

    name: str
    input: float = 1.0
    cached: float = 1.0
    output: float = 5.0
    write: float | None = None
    """Price of an input token that is written to the cache; None: as `input`."""
    min_prefix: int = 0
    """Shorter cached prefixes are billed in full."""

    @property
    def uncached(self) -> float:
        """Price of an input token that was not cached."""
        return self.input if self.write is None else self.write


@dataclass(frozen=True, kw_only=True, slots=True)
class Pricing:
    """Every list that a sweep is priced with."""

    name: str
    as_of: str
    currency: str
    lists: Mapping[str, PriceList]
    ratio_sweep: tuple[float, ...] = RATIO_SWEEP
    gpu_hour: float | None = None

    @property
    def primary(self) -> PriceList:
        """The first list."""
        return next(iter(self.lists.values()))


def pricing_from(data: Mapping[str, Any]) -> Pricing:
    """Return the pricing in a lock; the default relative lists where it is empty.

    Raises:
        ValueError: a list lacks a price, or one is negative.
    """
    per = float(data.get("per_tokens", 1))
    lists = {
        str(name): _list(str(name), prices, per) for name, prices in data.get("lists", {}).items()
    }
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


def _list(name: str, prices: Mapping[str, Any], per: float) -> PriceList:
    missing = [key for key in ("input", "cached", "output") if prices.get(key) is None]
    if missing:
        raise ValueError(f"price list {name} has no {', '.join(missing)} (conf/pricing)")
    if any(float(prices[key]) < 0 for key in ("input", "cached", "output")):
        raise ValueError(f"price list {name} has a negative price (conf/pricing)")
    return PriceList(
        name=name,
        input=float(prices["input"]) / per,
        cached=float(prices["cached"]) / per,
        output=float(prices["output"]) / per,
        write=None if prices.get("write") is None else float(prices["write"]) / per,
        min_prefix=int(prices.get("min_prefix", 0)),
    )
