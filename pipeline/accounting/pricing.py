"""What tokens cost under a price list, and where two arms cost the same (METHODS 4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Prices of one token, in whatever currency the pricing file names."""

    input: float
    cached: float
    output: float
    write: float | None = None
    """Of an input token that is written to the cache; None: the input price."""
    min_prefix: int = 0
    """A shorter cached prefix is billed in full."""

    def cost(self, *, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """Return the cost of one call."""
        cached = cached_tokens if cached_tokens >= self.min_prefix else 0
        full = self.input if self.write is None else self.write
        return (
            self.cached * cached + full * (prompt_tokens - cached) + self.output * completion_tokens
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """Token sums that a cost is linear in."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def price_lists(data: Mapping[str, Any]) -> dict[str, PriceList]:
    """Return the price lists of a pricing file, as prices of one token.

    Raises:
        ValueError: no lists, or a list without the three prices.
    """
    lists = data.get("lists")
    if not isinstance(lists, Mapping) or not lists:
        raise ValueError("a pricing file needs `lists`, each with input, cached and output prices")
    per = float(data.get("per_tokens", 1))
    found = {}
    for name, prices in lists.items():
        missing = {"input", "cached", "output"} - set(prices)
        if missing:
            raise ValueError(f"price list {name} has no {', '.join(sorted(missing))} price")
        write = prices.get("write")
        found[str(name)] = PriceList(
            input=prices["input"] / per,
            cached=prices["cached"] / per,
            output=prices["output"] / per,
            write=None if write is None else write / per,
            min_prefix=int(prices.get("min_prefix", 0)),
        )
    return found


def break_even_ratio(arm: Bill, reference: Bill, *, output_price: float) -> float | None:
    """Return the cached price, as a share of the input price, at which both cost the same.

    Below it the reference is the cheaper one where the arm has fewer cache hits. None where the
    hits are equal, so that the price of a hit decides nothing.

    Args:
        arm: sums of the arm.
        reference: sums of the arm it is compared with.
        output_price: of an output token, in input tokens.
    """
    hits = reference.cached_tokens - arm.cached_tokens
    if hits == 0:
        return None
    return (_full_price(arm, output_price) - _full_price(reference, output_price)) / hits


def _full_price(bill: Bill, output_price: float) -> float:
    return bill.prompt_tokens - bill.cached_tokens + output_price * bill.completion_tokens
