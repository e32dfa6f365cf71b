"""A reason not to launch, and what to do about it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason: the key that it is about, and what to say instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"
