"""Numbers that only make sense above a bound, so that a nonsense value is refused by its name.

Owns the bounds that several specs share. What two fields mean together is the spec's own check.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

Count = Annotated[int, Field(ge=1)]
"""How many of something there must be at least one of."""
Natural = Annotated[int, Field(ge=0)]
"""A number or a size; 0 is allowed, and means what the field says."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A time that something is given; none would be no chance at all."""
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A price, a budget, a delay."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of a whole."""


def _minutes(value: Any) -> Any:
    """Return Slurm's `hours:minutes:seconds` and `days-hours[:minutes[:seconds]]` in minutes."""
    if not isinstance(value, str) or not re.search(r"\d[:-]", value):
        return value
    found = re.fullmatch(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(\d+):(\d+):(\d+))", value)
    if found is None:
        raise ValueError(
            f"{value!r} is no time; give minutes, hours:minutes:seconds or days-hours[:minutes]"
        )
    days, *rest = (int(part or 0) for part in found.groups())
    hours, minutes, seconds = rest[:3] if "-" in value else rest[3:]
    return (days * 24 + hours) * 60 + minutes - (-seconds // 60)


Minutes = Annotated[int, BeforeValidator(_minutes), Field(ge=1)]
"""A time limit: minutes, or as Slurm writes it; a bare `90:00` could be either and is refused."""
