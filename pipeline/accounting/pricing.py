"""Where two arms cost the same as the price of a cached token changes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """A cost as a line over the price of a cached token, in shares of the input price."""

    without_hits: float
    """What it would be if hits were free."""
    hits: float
    """Tokens that were hits, each at its input price."""


def break_even_ratio(arm: Bill, reference: Bill) -> float | None:
    """Return the cached price, as a share of the input price, at which both cost the same.

    Below it the reference is the cheaper one where the arm has fewer cache hits. None where the
    hits are equal, so that the price of a hit decides nothing.

    Args:
        arm: of the arm.
        reference: of the arm it is compared with.
    """
    hits = reference.hits - arm.hits
    return (arm.without_hits - reference.without_hits) / hits if hits else None
