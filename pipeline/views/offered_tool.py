"""A tool that an arm adds to the model's list: what the model is told about it, what it answers.

Both are made from the arm's parameters, so that a schema offers no field that the arm ignores. The
policy decides what a call prunes; here a call only gets its answer in an ordinary turn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.views.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The result of a call that the model reads."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedTool:
    """One tool of an arm."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    """Arguments by name, as JSON schemas."""
    required: tuple[str, ...]
    answer: Callable[[Trajectory, str], Answered]
    """(trajectory, arguments as written) -> what the model reads, in an ordinary turn."""

    @property
    def schema(self) -> dict[str, Any]:
        """The entry of a request's tool list, where it stands in the cached prefix."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": self.properties,
                    "required": list(self.required),
                },
            },
        }
