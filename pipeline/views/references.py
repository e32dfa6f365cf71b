"""Whether a turn makes use of an earlier output: it names its file, or repeats one of its lines."""

from functools import lru_cache

from pipeline.shell.files import words_of
from pipeline.shell.lines import distinct_lines, output_lines
from pipeline.views.trajectory import Message, Turn

QUOTE_CHARS = 20
"""A shorter line is too common to count as a quotation."""


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
