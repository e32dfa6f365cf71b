"""Random deletion of older content: the 42 configurations and everything between (METHODS 2).

Every draw belongs to a place in the trajectory, so a share deletes all that a smaller share does,
and the same turns for reasoning as for outputs.
"""

import re
from collections.abc import Sequence

from pipeline.context.commands import without_text
from pipeline.context.draws import ranks, uniform
from pipeline.context.shown import (
    acted_turns,
    content_edit,
    is_removed,
    placeholder_text,
    reasoning_edit,
)
from pipeline.protocols import Ask
from pipeline.records.trajectory import (
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    Turn,
    shown_content,
)
from pipeline.spec.policy import Deletion

REASON = "delete"

_UNITS = re.compile(r"\s*(?:\w{1,8}|[^\w\s])|\s+")
"""Stands for a tokenizer's tokens: the source says tokens, and no vocabulary is at hand here."""


class DeletionPolicy:
    """Deletes a share of the turns, or of the tokens of each turn, once they are old enough."""

    def __init__(self, spec: Deletion, *, seed: int, placeholder: str | None) -> None:
        self._spec = spec
        self._seed = seed
        self._placeholder = placeholder

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


def units_of(text: str) -> list[str]:
    """Return the small pieces that stand for a text's tokens; joined, they are the text."""
    return _UNITS.findall(text)
