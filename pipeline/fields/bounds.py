"""Numbers that only make sense above a bound, so that a nonsense value is refused by its name.

Owns the bounds that several specs share. What two fields mean together is the spec's own check.
"""

from typing import Annotated

from pydantic import Field

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
