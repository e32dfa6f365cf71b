"""The strong model that judges texts, behind any OpenAI-compatible endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.fields.identity import Runtime, Science
from pipeline.fields.strict import Strict


@dataclass(frozen=True, kw_only=True)
class JudgeSpec(Strict):
    """Where the judge is, what it is asked with, and what it may cost."""

    base_url: Runtime[str | None] = None
    """Up to and including `/v1`."""
    model: Science[str | None] = None
    api_key_env: Runtime[str | None] = None
    """Environment variable with the key; the key itself is never stored."""
    temperature: Science[float] = 0.0
    max_tokens: Science[int] = 2048
    extra_body: Science[Mapping[str, Any]] = field(default_factory=dict)
    seed: Science[int] = 0
    max_attempts: Runtime[int] = 3
    """Unusable answers are asked for again, with what was wrong."""
    concurrency: Runtime[int] = 4
    request_timeout_s: Runtime[float] = 600.0
    input_price: Runtime[float] = 0.0
    """Per million prompt tokens."""
    output_price: Runtime[float] = 0.0
    """Per million completion tokens."""
    max_cost: Runtime[float | None] = None
    """No request is sent that might bring the cost above this; None: no cap."""
    journal: Runtime[str | None] = None
    """Folder of the answers that are paid for, one file a process."""
