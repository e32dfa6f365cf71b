"""What a conversation with a server finds, and what it is held with: the form of both."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.records.failure import ServerError


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    fix: str = ""
    """What to change; empty where nothing is to be done."""
    blocks: bool = False
    """A sweep on this server would be wasted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """What the runs of a sweep send beside their messages."""

    tools: Sequence[Mapping[str, Any]] = ()
    """Of all arms together; empty in text mode."""
    tool_choice: str | Mapping[str, Any] | None = None
    """Of a cleanup turn; None where no arm has any."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields."""

    @property
    def encoded(self) -> bytes:
        """The tool list as it is sent; `[]` where there is none."""
        return json.dumps(list(self.tools)).encode()


class ServerUnfitError(ServerError):
    """The server is not what the configuration says; a run on it would be wasted."""


def blocking_text(findings: Sequence[Finding]) -> str:
    """Return the blocking findings as one message, empty where there is none."""
    return "; ".join(f"{f.what}: {f.found} -> {f.fix}" for f in findings if f.blocks)
