"""Clearing of old tool results past a threshold, as a provider's API documents it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import ShownTokens, content_edit, is_removed, placeholder_text
from pipeline.views.trajectory import Edit, Edits, Part, Trajectory, tool_calls_as_sent

REASON = "clear"


@dataclass(frozen=True, kw_only=True)
class ContextEdit(Parameters):
    """Past a threshold of input tokens, all but the newest tool results are cleared."""

    source: ClassVar[str] = "Anthropic's clear_tool_uses, as documented"
    tuned: ClassVar[str | None] = "trigger_tokens"
    example: ClassVar[Mapping[str, Any]] = {"trigger_tokens": 300, "keep_tool_uses": 2}

    kind: Science[Literal["context_edit"]] = "context_edit"
    trigger_tokens: Science[Natural] = 100_000
    keep_tool_uses: Science[Natural] = 3
    clear_at_least_tokens: Science[Natural] = 0
    """Nothing is cleared where less than this could be."""
    exclude_tools: Science[tuple[str, ...]] = ()
    clear_tool_inputs: Science[bool] = False

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return ContextEditPolicy(self, context)


class ContextEditPolicy:
    """Clears all but the newest tool results once the view is long enough."""

    def __init__(self, spec: ContextEdit, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder
        self._tokens = ShownTokens(context.counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits that clear old results; none below the threshold or the minimum."""
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
