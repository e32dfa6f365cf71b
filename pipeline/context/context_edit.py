"""Clearing by threshold, as a provider's API documents it: tool results, or old thinking."""

import json
from collections.abc import Collection, Sequence

from pipeline.context.shown import (
    ShownTokens,
    acted_turns,
    content_edit,
    is_removed,
    placeholder_text,
    reasoning_edit,
)
from pipeline.protocols import Ask, TokenCounter
from pipeline.records.trajectory import (
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    tool_calls_as_sent,
)
from pipeline.spec.policy import ClearThinking, ContextEdit

REASON = "clear"


class ContextEditPolicy:
    """Clears all but the newest tool results once the view is long enough."""

    def __init__(
        self, spec: ContextEdit, *, placeholder: str | None, counter: TokenCounter
    ) -> None:
        self._spec = spec
        self._placeholder = placeholder
        self._tokens = ShownTokens(counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the clearing of this moment: nothing below the threshold or the minimum."""
        if self._tokens.of_view(trajectory, standing) <= self._spec.trigger_tokens:
            return ()
        results = list(trajectory.observations())
        clearable = [
            m
            for m in results[: max(0, len(results) - self._spec.keep_tool_uses)]
            if m.is_prunable
            and m.tool not in self._spec.exclude_tools
            and not is_removed(m, standing)
        ]
        edits = [content_edit(m, placeholder_text(self._placeholder, m), REASON) for m in clearable]
        cleared = sum(
            self._tokens.of_content(m, standing) - self._tokens.of_text(e.text)
            for m, e in zip(clearable, edits, strict=True)
        )
        if cleared < self._spec.clear_at_least_tokens:
            return ()
        if self._spec.clear_tool_inputs:
            edits += cleared_inputs(trajectory, {m.tool_call_id for m in clearable}, standing)
        return edits


def cleared_inputs(
    trajectory: Trajectory, ids: Collection[str | None], standing: Edits
) -> list[Edit]:
    """Return the edits that empty the arguments of the calls with these ids."""
    edits = []
    for turn in trajectory.turns:
        if not any(call.id in ids for call in turn.assistant.tool_calls):
            continue
        old = standing.get((turn.assistant.index, Part.TOOL_CALLS))
        calls = (
            tool_calls_as_sent(turn.assistant.tool_calls) if old is None else json.loads(old.text)
        )
        for call in calls:
            if call["id"] in ids:
                call["function"]["arguments"] = "{}"
        edits.append(
            Edit(
                message_index=turn.assistant.index,
                part=Part.TOOL_CALLS,
                text=json.dumps(calls, ensure_ascii=False),
                reason=REASON,
            )
        )
    return edits


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
