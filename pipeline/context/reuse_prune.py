"""Outputs that nothing has referred to for some turns are pruned (METHODS 2: asked for there).

A turn refers to an output when the assistant's text, reasoning or commands name a file that the
output's command names, or repeat one of its longer lines. The rule is ours: the source leaves it
open.
"""

from collections.abc import Sequence
from functools import lru_cache

from pipeline.context.shown import acted_turns, content_edit, is_removed, placeholder_text
from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Message, Trajectory, Turn
from pipeline.shell.files import words_of
from pipeline.shell.lines import distinct_lines, output_lines
from pipeline.spec.policy import ReusePrune

REASON = "reuse"
QUOTE_CHARS = 20
"""A shorter line is too common to count as a quotation."""


class ReusePrunePolicy:
    """Prunes what went unused for `unused_turns` turns."""

    def __init__(self, spec: ReusePrune, *, placeholder: str | None) -> None:
        self._spec = spec
        self._placeholder = placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for outputs whose last use is long enough ago."""
        turns = acted_turns(trajectory)
        keep = max(self._spec.unused_turns, self._spec.protect_last_turns)
        recent = turns[max(0, len(turns) - self._spec.unused_turns) :]
        return [
            content_edit(message, placeholder_text(self._placeholder, message), REASON)
            for turn in turns[: max(0, len(turns) - keep)]
            for message in turn.observations
            if message.is_prunable
            and not is_removed(message, standing)
            and not any(refers(later, message) for later in recent)
        ]


def refers(turn: Turn, output: Message) -> bool:
    """Return whether a turn's assistant message makes use of an output."""
    words, lines = said_in(turn)
    if not _names(output.command or "").isdisjoint(words):
        return True
    return not lines.isdisjoint(output_lines(output.command, output.printed))


def said_in(turn: Turn) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words and the longer lines of what an assistant wrote and ran."""
    message = turn.assistant
    commands = "\n".join(result.command or "" for result in turn.observations)
    return _words_and_lines(message.content, message.reasoning or "", commands)


@lru_cache(maxsize=2048)
def _words_and_lines(*texts: str) -> tuple[frozenset[str], frozenset[str]]:
    text = "\n".join(texts)
    lines = frozenset(line for line in distinct_lines(text) if len(line) >= QUOTE_CHARS)
    return words_of(text), lines


@lru_cache(maxsize=2048)
def _names(command: str) -> frozenset[str]:
    """Return the words of a command that look like files."""
    return frozenset(
        word
        for word in words_of(command)
        if len(word) > 2 and ("/" in word or "." in word.strip(".")) and not word.startswith("-")
    )
