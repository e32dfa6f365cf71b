"""Clearing of old thinking, as a provider's API documents it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import acted_turns, reasoning_edit
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory

REASON = "clear"


@dataclass(frozen=True, kw_only=True)
class ClearThinking(Parameters):
    """Only the newest thinking turns keep their reasoning."""

    source: ClassVar[str] = "Anthropic's clear_thinking, as documented"

    kind: Science[Literal["clear_thinking"]] = "clear_thinking"
    keep_turns: Science[Natural] = 1

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return ClearThinkingPolicy(self)


class ClearThinkingPolicy:
    """Takes the reasoning from all but the newest thinking turns."""

    def __init__(self, spec: ClearThinking) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for turns whose reasoning has become old."""
        thinking: list[Message] = [
            turn.assistant for turn in acted_turns(trajectory) if turn.assistant.reasoning
        ]
        return [
            reasoning_edit(message, REASON)
            for message in thinking[: max(0, len(thinking) - self._spec.keep_turns)]
            if (message.index, Part.REASONING) not in standing
        ]
