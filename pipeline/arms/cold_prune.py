"""Pruning at the moments when the cache has lost the prefix anyway, so that a cut costs nothing.

See docs/methods.md, What people run.

Long outputs are cut to their head and tail first; if that is not enough, the oldest go entirely.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Count, Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    ShownTokens,
    content_edit,
    is_cold,
    is_removed,
    older_turns,
    placeholder_text,
)
from pipeline.views.trajectory import (
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    merged,
    shown_content,
)

TRIM = "trim"


@dataclass(frozen=True, kw_only=True)
class ColdPrune(Parameters):
    """Old outputs are trimmed, then cleared, but only when the cache has expired."""

    source: ClassVar[str] = "OpenClaw's session pruning (cache-ttl), as documented"
    tuned: ClassVar[str | None] = "clear_from_share"
    example: ClassVar[Mapping[str, Any]] = {
        "keep_last_turns": 1,
        "trim_from_share": 0.0,
        "trim_above_chars": 300,
        "head_chars": 60,
        "tail_chars": 30,
    }

    kind: Science[Literal["cold_prune"]] = "cold_prune"
    ttl_s: Science[Amount] = 300.0
    """Idle seconds after which the cache has lost the prefix."""
    keep_last_turns: Science[Natural] = 3
    """The newest turns' outputs stay as they are."""
    trim_from_share: Science[Share] = 0.3
    """Nothing is done while the view holds less of the window."""
    trim_above_chars: Science[Count] = 4000
    """Longer outputs are cut to their head and tail."""
    head_chars: Science[Natural] = 1500
    tail_chars: Science[Natural] = 1500
    clear_from_share: Science[Share] = 0.5
    """Once all are trimmed, the oldest are cleared until the view holds less of the window."""
    min_clear_chars: Science[Natural] = 50_000
    """Nothing is cleared while the old outputs hold less."""

    def __post_init__(self) -> None:
        if self.head_chars + self.tail_chars >= self.trim_above_chars:
            raise ValueError(
                f"head_chars + tail_chars is {self.head_chars + self.tail_chars}; it must be below"
                f" trim_above_chars ({self.trim_above_chars})"
            )

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return ColdPrunePolicy(self, context)


class ColdPrunePolicy:
    """Waits until the prefix is cold, then makes the view as small as the shares ask."""

    def __init__(self, spec: ColdPrune, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._window = context.context_length
        self._tokens = ShownTokens(context.counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the trims and clearings of a cold moment; none while the cache is warm."""
        if not is_cold(trajectory, self._spec.ttl_s):
            return ()
        held = self._tokens.of_view(trajectory, standing)
        if held < self._spec.trim_from_share * self._window:
            return ()
        old = [
            message
            for turn in older_turns(trajectory, self._spec.keep_last_turns)
            for message in turn.observations
            if message.is_prunable and not _is_cleared(message, standing)
        ]
        trims = [
            content_edit(message, self._trimmed(shown_content(message, standing)), TRIM)
            for message in old
            if len(shown_content(message, standing)) > self._spec.trim_above_chars
        ]
        return list(
            merged({}, [*trims, *self._clear(old, trajectory, merged(standing, trims))]).values()
        )

    def _clear(self, old: Sequence[Message], trajectory: Trajectory, trimmed: Edits) -> list[Edit]:
        """Return the edits that clear the oldest outputs, as many as the share asks for."""
        if sum(len(shown_content(m, trimmed)) for m in old) < self._spec.min_clear_chars:
            return []
        held = self._tokens.of_view(trajectory, trimmed)
        edits: list[Edit] = []
        for message in old:
            if held < self._spec.clear_from_share * self._window:
                break
            text = placeholder_text(self._placeholder, message)
            held -= self._tokens.of_content(message, trimmed) - self._tokens.of_text(text)
            edits.append(content_edit(message, text, "clear"))
        return edits

    def _trimmed(self, text: str) -> str:
        head, tail = self._spec.head_chars, self._spec.tail_chars
        left_out = len(text) - head - tail
        return f"{text[:head]}\n[{left_out} characters left out]\n{text[len(text) - tail :]}"


def _is_cleared(message: Message, standing: Edits) -> bool:
    edit = standing.get((message.index, Part.CONTENT))
    return is_removed(message, standing) and not (edit is not None and edit.reason == TRIM)
