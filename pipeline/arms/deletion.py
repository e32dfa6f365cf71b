"""Random deletion of older content: the 42 configurations, and shares in between.

See docs/methods.md, Random deletion.

Every random number belongs to a place in the trajectory. So a larger share deletes all that a
smaller one does, and reasoning and outputs are deleted in the same turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.commands import without_text
from pipeline.views.draws import ranks, uniform
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    acted_turns,
    content_edit,
    is_removed,
    older_turns,
    placeholder_text,
    reasoning_edit,
)
from pipeline.views.thinning import thinned
from pipeline.views.thoughts import thought_edit
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn, shown_content

REASON = "delete"


@dataclass(frozen=True, kw_only=True)
class Deletion(Parameters):
    """A random share of older content is deleted: one of the 42 configurations, or one between."""

    source: ClassVar[str] = "arXiv 2610.35496"
    tuned: ClassVar[str | None] = "rate"

    METHOD: ClassVar[int] = 2

    kind: Science[Literal["deletion"]] = "deletion"
    scope: Science[Literal["reasoning", "output", "both"]] = "output"
    unit: Science[Literal["turn", "token"]] = "turn"
    rate: Science[Share] = 0.5
    """Share deleted, 0 to 1: of the eligible turns, or of the tokens of each."""
    reasoning_delay: Science[Natural] = 2
    output_delay: Science[Natural] = 2
    """Newest turns left intact; 0 rewrites before the next call."""
    reasoning_in: Science[Literal["both", "auto", "field", "text"]] = "both"
    """Where reasoning is: all the thinking that the next call would show, its own field and the
    assistant's text; one of them; or (`auto`) the text only where a model has no field. Thoughts
    that are arguments of a tool are reasoning in each case."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"rate is {self.rate}, not between 0 and 1")

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return DeletionPolicy(self, context)


class DeletionPolicy:
    """Deletes a share of the turns, or of the tokens of each turn, once they are old enough."""

    def __init__(self, spec: Deletion, context: PolicyContext) -> None:
        self._spec = spec
        self._seed, self._counter = context.seed, context.counter
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the deletions of the turns that have just become eligible."""
        edits: list[Edit] = []
        if self._spec.scope != "reasoning":
            for number, turn in self._eligible(trajectory, self._spec.output_delay):
                edits += self._outputs(number, turn, standing)
        if self._spec.scope != "output":
            parts = self._reasoning_parts(acted_turns(trajectory))
            for number, turn in self._eligible(trajectory, self._spec.reasoning_delay):
                edits += self._reasoning(number, turn, standing, parts)
        return edits

    def _eligible(self, trajectory: Trajectory, delay: int) -> list[tuple[int, Turn]]:
        old = enumerate(older_turns(trajectory, delay))
        if self._spec.unit == "token":
            return list(old)
        return [(n, t) for n, t in old if uniform(self._seed, "turn", n) < self._spec.rate]

    def _outputs(self, number: int, turn: Turn, standing: Edits) -> list[Edit]:
        return [
            content_edit(message, self._output_text(number, message, standing), REASON)
            for message in turn.observations
            if message.is_prunable and not is_removed(message, standing)
        ]

    def _output_text(self, number: int, message: Message, standing: Edits) -> str:
        if self._spec.unit == "turn":
            return placeholder_text(self._placeholder, message)
        return self._thinned(shown_content(message, standing), number, message.index)

    def _reasoning(
        self, number: int, turn: Turn, standing: Edits, parts: Sequence[Part]
    ) -> Iterator[Edit]:
        message = turn.assistant

        def shortened(text: str) -> str:
            return "" if self._spec.unit == "turn" else self._thinned(text, number, message.index)

        open_parts = [part for part in parts if (message.index, part) not in standing]
        if Part.REASONING in open_parts and message.reasoning:
            yield replace(reasoning_edit(message, REASON), text=shortened(message.reasoning))
        if Part.CONTENT in open_parts and message.content:
            # Commands in it stay.
            text = without_text(turn, shortened)
            if text != message.content:
                yield content_edit(message, text, REASON)
        thoughts = thought_edit(message, REASON, shortened)
        if thoughts is not None and (message.index, Part.TOOL_CALLS) not in standing:
            yield thoughts

    def _thinned(self, text: str, number: int, index: int) -> str:
        def chosen(n: int) -> set[int]:
            order = ranks(self._seed, n, "token", number, index)
            return set(order[round(self._spec.rate * n) :])

        return thinned(text, self._counter, chosen)

    def _reasoning_parts(self, turns: Sequence[Turn]) -> Sequence[Part]:
        where = self._spec.reasoning_in
        if where == "auto":
            where = "field" if any(turn.assistant.reasoning for turn in turns) else "text"
        return {
            "both": (Part.REASONING, Part.CONTENT),
            "field": (Part.REASONING,),
            "text": (Part.CONTENT,),
        }[where]
