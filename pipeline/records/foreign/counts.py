"""Token counts in other people's files: what is none is unknown, and never 0."""

import math
from collections.abc import Mapping
from typing import Any

_MOST = 10**9
"""No call has more tokens; a larger number is something else."""


def tokens(counts: Mapping[str, Any], name: str) -> int | None:
    """Return a count of tokens; None where it is missing, no number, negative or impossible."""
    value = counts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or not 0 <= value <= _MOST:
        return None
    return int(value)


def counts_in(value: Any) -> Mapping[str, Any]:
    """Return an object of counts; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}
