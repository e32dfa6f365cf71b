"""Where two arms cost the same as the price of a cached token changes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """Token sums that a cost is linear in."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


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
