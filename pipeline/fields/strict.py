"""The base of the specs of which several may stand in one place, told apart by `kind`."""

from typing import Any, ClassVar


class Strict:
    """Base of specs whose misspelt keys are refused by the parser."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
