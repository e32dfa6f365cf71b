"""Random deletion of older content: the 42 configurations and everything between.

See docs/methods.md, Random deletion.

Every draw belongs to a place in the trajectory, so a share deletes all that a smaller share does,
and the same turns for reasoning as for outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
    placeholder_text,
    reasoning_edit,
)
from pipeline.views.thinning import units_of
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, Turn, shown_content

REASON = "delete"


@dataclass(frozen=True, kw_only=True)
class Deletion(Parameters):
    """A random share of older content is deleted: one of the 42 configurations, or one between."""

    source: ClassVar[str] = "arXiv 2610.35496"
    tuned: ClassVar[str | None] = "rate"

    kind: Science[Literal["deletion"]] = "deletion"
    scope: Science[Literal["reasoning", "output", "both"]] = "output"
    unit: Science[Literal["turn", "token"]] = "turn"
    rate: Science[Share] = 0.5
    """Share deleted, 0 to 1: of the eligible turns, or of the tokens of each."""
    reasoning_delay: Science[Natural] = 2
    output_delay: Science[Natural] = 2
    """Newest turns left intact; 0 rewrites before the next call."""
    reasoning_in: Science[Literal["auto", "field", "text"]] = "auto"
    """Where reasoning is: its own field, or the assistant's text where the model has none."""

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
        self._seed = context.seed
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the deletions of the turns that have just become eligible."""
        turns = acted_turns(trajectory)
        edits: list[Edit] = []
        if self._spec.scope != "reasoning":
            for number, turn in self._eligible(turns, self._spec.output_delay):
                edits += self._outputs(number, turn, standing)
        if self._spec.scope != "output":
            in_text = self._reasoning_is_text(turns)
            for number, turn in self._eligible(turns, self._spec.reasoning_delay):
                edits += self._reasoning(number, turn, standing, in_text=in_text)
        return edits

    def _eligible(self, turns: Sequence[Turn], delay: int) -> list[tuple[int, Turn]]:
        old = enumerate(turns[: max(0, len(turns) - delay)])
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

    def _reasoning(self, number: int, turn: Turn, standing: Edits, *, in_text: bool) -> list[Edit]:
        message = turn.assistant
        part = Part.CONTENT if in_text else Part.REASONING
        text = message.content if in_text else message.reasoning
        if not text or (message.index, part) in standing:
            return []
        if in_text:
            return [content_edit(message, self._thought_text(number, turn), REASON)]
        if self._spec.unit == "turn":
            return [reasoning_edit(message, REASON)]
        thinned = self._thinned(text, number, message.index)
        return [Edit(message_index=message.index, part=part, text=thinned, reason=REASON)]

    def _thought_text(self, number: int, turn: Turn) -> str:
        """Return the assistant's text without its thoughts; commands in it stay."""
        if self._spec.unit == "turn":
            return without_text(turn, lambda _: "")
        return without_text(turn, lambda text: self._thinned(text, number, turn.assistant.index))

    def _thinned(self, text: str, number: int, index: int) -> str:
        units = units_of(text)
        order = ranks(self._seed, len(units), "token", number, index)
        gone = set(order[: round(self._spec.rate * len(units))])
        return "".join(unit for place, unit in enumerate(units) if place not in gone)

    def _reasoning_is_text(self, turns: Sequence[Turn]) -> bool:
        if self._spec.reasoning_in == "auto":
            return not any(turn.assistant.reasoning for turn in turns)
        return self._spec.reasoning_in == "text"
