"""A window counted in tokens of output, moved only when that frees enough: opencode's rule.

See docs/methods.md, What people run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_removed,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory


@dataclass(frozen=True, kw_only=True)
class TokenWindow(Parameters):
    """The newest tokens of output stay; older outputs go once that frees enough."""

    source: ClassVar[str] = "opencode's pruning of tool outputs, as in its source"
    tuned: ClassVar[str | None] = "keep_tokens"
    example: ClassVar[Mapping[str, Any]] = {"keep_tokens": 150, "free_at_least_tokens": 50}

    kind: Science[Literal["token_window"]] = "token_window"
    keep_tokens: Science[Natural] = 40_000
    """Of the newest outputs. The output with which they are exceeded is old."""
    free_at_least_tokens: Science[Natural] = 20_000
    """Old outputs stay until they hold more than this."""
    protect_user_turns: Science[Natural] = 0
    """Outputs that came after this many of the newest user messages stay, whatever their size.
    opencode has 2, which protects all of a run that was given one task."""
    protect_last_turns: Science[Natural] = 1
    """So that the model sees every output once."""
    protect_tools: Science[tuple[str, ...]] = ("skill",)

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return TokenWindowPolicy(self, context)


class TokenWindowPolicy:
    """Walks back from the newest output and clears what lies beyond the window."""

    def __init__(self, spec: TokenWindow, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._tokens = ShownTokens(context.counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits that clear the old outputs, if they hold enough."""
        walked = freed = 0
        edits: list[Edit] = []
        protected = self._first_protected(trajectory)
        for message in reversed(trajectory.messages):
            if not self._is_clearable(message, standing):
                continue
            size = self._tokens.of_content(message, standing)
            walked += size
            text = placeholder_text(self._placeholder, message)
            is_old = walked > self._spec.keep_tokens and message.index < protected
            if is_old and size > self._tokens.of_text(text):
                freed += size
                edits.append(content_edit(message, text, "clear"))
        return edits if freed > self._spec.free_at_least_tokens else ()

    def _is_clearable(self, message: Message, standing: Edits) -> bool:
        return (
            message.is_prunable
            and message.tool not in self._spec.protect_tools
            and not is_removed(message, standing)
        )

    def _first_protected(self, trajectory: Trajectory) -> int:
        """Return the index of the message from which on everything stays."""
        asked = [m.index for m in trajectory.messages if m.role == "user" and m.tool is None]
        begun = [turn.assistant.index for turn in acted_turns(trajectory)]
        protected = ((asked, self._spec.protect_user_turns), (begun, self._spec.protect_last_turns))
        return min(
            (starts[-n] if len(starts) >= n else 0 for starts, n in protected if n > 0),
            default=len(trajectory.messages),
        )
