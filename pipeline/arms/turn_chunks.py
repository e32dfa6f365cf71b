"""Recency by turns, with the view rewritten only once every so many turns: NeMo Gym's schedule.

See docs/methods.md, What people run.

NeMo Gym keeps the newest blocks of reasoning and the newest images; outputs stand for images here.
Between two rewrites the view only grows, so the cached prefix breaks once per chunk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    acted_turns,
    changed,
    content_edit,
    is_removed,
    placeholder_text,
    reasoning_edit,
)
from pipeline.views.trajectory import Edit, Edits, Trajectory

REASON = "chunk"


@dataclass(frozen=True, kw_only=True)
class TurnChunks(Parameters):
    """The newest turns keep outputs and reasoning; the view is rewritten every few turns."""

    source: ClassVar[str] = "NeMo Gym's turn_chunked_recency, as documented"
    tuned: ClassVar[str | None] = "keep_last_turns"
    example: ClassVar[Mapping[str, Any]] = {"keep_last_turns": 1, "chunk_turns": 3}

    kind: Science[Literal["turn_chunks"]] = "turn_chunks"
    keep_last_turns: Science[Natural] = 10
    """Turns that are whole right after a rewrite."""
    chunk_turns: Science[Count] = 10
    """Turns from one rewrite to the next; 1 is rolling recency."""
    scope: Science[Literal["both", "output", "reasoning"]] = "both"
    """What older turns lose."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return TurnChunksPolicy(self, context)


class TurnChunksPolicy:
    """Rewrites the view after every chunk of turns, and leaves it alone in between."""

    def __init__(self, spec: TurnChunks, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits of the last rewrite that are not in force yet."""
        turns = acted_turns(trajectory)
        rewritten = len(turns) - len(turns) % self._spec.chunk_turns
        edits: list[Edit] = []
        for turn in turns[: max(0, rewritten - self._spec.keep_last_turns)]:
            if self._spec.scope != "output" and turn.assistant.reasoning:
                edits.append(reasoning_edit(turn.assistant, REASON))
            if self._spec.scope != "reasoning":
                edits += [
                    content_edit(m, placeholder_text(self._placeholder, m), REASON)
                    for m in turn.observations
                    if m.is_prunable and not is_removed(m, standing)
                ]
        return changed(edits, standing)
