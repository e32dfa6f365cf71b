"""Which files a command writes and which it prints, and what in its text is their content."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache

from pipeline.shell.facts import facts_of
from pipeline.shell.syntax import without_heredocs

_TARGET = re.compile(r">{1,2}\s*([^\s<>&|;]+)|\btee\s+(?:-a\s+)?([^\s<>&|;-][^\s<>&|;]*)")
_PYTHON_WRITE = re.compile(
    r"open\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"][wa]|Path\(\s*['\"]([^'\"]+)['\"]\s*\)\.write_"
)
_SED_IN_PLACE = re.compile(r"\bsed\s+(?:-\w+\s+)*-i\S*\s+(.*)\s([^\s;|&<>]+)\s*$", re.S)
EDITORS: tuple[str, ...] = ("str_replace_editor ", "str_replace_based_edit_tool ")
"""How a call of a tool that views and edits files begins, its words quoted by `shlex.join`."""
_QUOTED = r"'(?:[^']|'\"'\"')*'"
"""A word as `shlex.join` quotes it."""
_EDITED_PATH = re.compile(rf"\w+ (?:create|str_replace|insert) ({_QUOTED}|[^\s']+)")
_EDITED_TEXT = re.compile(r" --(?:file_text|new_str|old_str) '((?:[^']|'\"'\"')*)'")
_WORD = re.compile(r"[^\s'\"`|;&<>()\[\]{},:=]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A file that a command wrote, and where in the command's text its content is."""

    path: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def written_by(command: str) -> tuple[Written, ...]:
    """Return what a command writes by a heredoc, or edits by a script or a text in the command."""
    if command.startswith(EDITORS):
        return tuple(_edited(command))
    text, documents = without_heredocs(command)
    found = []
    for number, document in enumerate(documents):
        marker = f"< /heredoc/{number} "
        line = next(line for line in text.splitlines() if marker in line)
        target = _TARGET.search(line.replace(marker, "")) or _PYTHON_WRITE.search(document.body)
        if target is not None:
            # The last newline belongs to the mark of the end.
            end = document.end - document.body.endswith("\n")
            path = target.group(1) or target.group(2)
            found.append(Written(path=path, start=document.start, end=end))
    sed = _SED_IN_PLACE.search(command) if not found else None
    if sed is not None:
        found.append(Written(path=sed.group(2), start=sed.start(1), end=sed.end(1)))
    return tuple(found)


def _edited(command: str) -> Iterator[Written]:
    """Yield the texts that a call of an editor writes, the quotes around them left out."""
    place = _EDITED_PATH.match(command)
    if place is None:
        return
    path = shlex.split(place.group(1))[0]
    for text in _EDITED_TEXT.finditer(command):
        yield Written(path=path, start=text.start(1), end=text.end(1))


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """Return the words of a command or text, quotes and brackets stripped."""
    return frozenset(word.rstrip(".") for word in _WORD.findall(text))


@lru_cache(maxsize=4096)
def read_by(command: str) -> frozenset[str]:
    """Return the words of a command that may name a file it prints; empty if it prints none."""
    return frozenset(word for shown in facts_of(command).shown_words for word in words_of(shown))


def same_file(path: str, word: str) -> bool:
    """Return whether a word names the file at `path`, one of them perhaps from further up."""
    path, word = path.removeprefix("./"), word.removeprefix("./")
    return path == word or word.endswith("/" + path) or path.endswith("/" + word)


def is_protected(command: str | None, patterns: Sequence[str]) -> bool:
    """Return whether a command names a file that matches one of the shell patterns."""
    if not patterns or not command:
        return False
    return any(
        fnmatch(word, pattern) or fnmatch(word.rsplit("/", 1)[-1], pattern)
        for word in words_of(command)
        for pattern in patterns
    )
