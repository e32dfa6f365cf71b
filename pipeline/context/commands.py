"""Commands as policies see them: what a command wrote or read, and how its text is cut.

Rules on the text of a shell command, good enough to find the repeats, writes and reads that agents
make. Labelling re-fetches for the analysis is not done here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache

from pipeline.records.trajectory import (
    Edit,
    Edits,
    Message,
    Part,
    Turn,
    shown_content,
    tool_calls_as_sent,
)

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)\n?^[ \t]*\2[ \t]*$", re.S | re.M)
_TARGET = re.compile(r">{1,2}\s*([^\s<>&|;]+)|\btee\s+(?:-a\s+)?([^\s<>&|;-][^\s<>&|;]*)")
_PYTHON_WRITE = re.compile(
    r"open\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"][wa]|Path\(\s*['\"]([^'\"]+)['\"]\s*\)\.write_"
)
_SED_IN_PLACE = re.compile(r"\bsed\s+(?:-\w+\s+)*-i\S*\s+(.*)\s([^\s;|&<>]+)\s*$", re.S)
_READERS = re.compile(r"(?:^|[|;&(\n]\s*|\b)(cat|head|tail|less|more|nl|sed|grep|rg|awk|git)\b")
_WORD = re.compile(r"[^\s'\"`|;&<>()\[\]{},:=]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A file that a command wrote, and where in the command's text its content is."""

    path: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def written_by(command: str) -> tuple[Written, ...]:
    """Return what a command writes by a heredoc, or edits by a script in the command."""
    found = []
    for match in _HEREDOC.finditer(command):
        line_start = command.rfind("\n", 0, match.start()) + 1
        header = command[line_start : match.start()] + " " + match.group(3)
        target = _TARGET.search(header) or _PYTHON_WRITE.search(match.group(4))
        if target is not None:
            path = target.group(1) or target.group(2)
            found.append(Written(path=path, start=match.start(4), end=match.end(4)))
    sed = _SED_IN_PLACE.search(command) if not found else None
    if sed is not None:
        found.append(Written(path=sed.group(2), start=sed.start(1), end=sed.end(1)))
    return tuple(found)


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """Return the words of a command or text, quotes and brackets stripped."""
    return frozenset(word.rstrip(".") for word in _WORD.findall(text))


@lru_cache(maxsize=4096)
def read_by(command: str) -> frozenset[str]:
    """Return the words of a command that may name a file it prints; empty if it prints none."""
    if "sed" in command and re.search(r"\bsed\s+(?:-\w+\s+)*-i", command):
        return frozenset()
    return words_of(command) if _READERS.search(command) else frozenset()


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


def cut_commands(
    turn: Turn, standing: Edits, shorter: Mapping[int, str], reason: str
) -> Edit | None:
    """Return the edit that shows shorter commands in an assistant message.

    Args:
        turn: whose assistant message is edited.
        standing: edits in force; other cuts of the same message are kept.
        shorter: the new command by the index of the result it belongs to.
        reason: of the edit.
    """
    assistant = turn.assistant
    results = {m.tool_call_id: m for m in turn.observations if m.index in shorter}
    if assistant.tool_calls:
        edit = standing.get((assistant.index, Part.TOOL_CALLS))
        calls = tool_calls_as_sent(assistant.tool_calls) if edit is None else json.loads(edit.text)
        before = json.dumps(calls, ensure_ascii=False)
        for call in calls:
            result = results.get(call["id"])
            if result is not None:
                call["function"]["arguments"] = json.dumps(
                    {"command": shorter[result.index]}, ensure_ascii=False
                )
        text = json.dumps(calls, ensure_ascii=False)
        part = Part.TOOL_CALLS
    else:
        before = text = shown_content(assistant, standing)
        part = Part.CONTENT
        for message in turn.observations:
            if message.index in shorter and message.command:
                text = text.replace(message.command, shorter[message.index], 1)
    if text == before:
        return None
    return Edit(message_index=assistant.index, part=part, text=text, reason=reason)


def without_text(turn: Turn, change: Callable[[str], str]) -> str:
    """Return the assistant's content with `change` made to all but the commands in it.

    With tool calls the whole content is text; without them the fenced blocks are the actions.
    """
    content = turn.assistant.content
    if turn.assistant.tool_calls:
        return change(content)
    pieces = re.split(r"(^```.*?^```[ \t]*$)", content, flags=re.S | re.M)
    kept = [p if p.startswith("```") else change(p).strip() for p in pieces]
    return "\n".join(p for p in kept if p)


def command_of(message: Message) -> str:
    """Return the command a result belongs to, stripped."""
    return (message.command or "").strip()
