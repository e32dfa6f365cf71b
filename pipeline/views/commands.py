"""Cutting the text of commands in the assistant messages that hold them."""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pipeline.views.trajectory import (
    Edit,
    Edits,
    Message,
    Part,
    Turn,
    shown_content,
    tool_calls_as_sent,
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
        asked = {call.id: call.arguments for call in assistant.tool_calls}
        for call in calls:
            result = results.get(call["id"])
            if result is not None:
                call["function"]["arguments"] = _cut_arguments(
                    asked[call["id"]], result.command or "", shorter[result.index]
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


def _cut_arguments(arguments: str, command: str, shorter: str) -> str:
    """Return a call's arguments with its command cut.

    A shell's command is its argument. Another tool's call only amounts to one (`Tool.as_command`):
    what follows a `--name` there is the argument of that name, and is cut as the command was, or
    wholly where that was. What the tool is asked to do, and with which file, stays.
    """
    given = json.loads(arguments)
    if given.get("command") == command:
        return json.dumps({"command": shorter}, ensure_ascii=False)
    try:
        before, after = shlex.split(command), shlex.split(shorter)
    except ValueError:
        return arguments
    for flag, value in pairwise(before):
        name = flag.removeprefix("--")
        if flag != f"--{name}" or given.get(name) != value or not isinstance(value, str):
            continue
        cut = after[before.index(flag) + 1] if len(after) == len(before) else shorter
        given[name] = min(cut, value, key=len)
    return json.dumps(given, ensure_ascii=False)


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


def cuts(
    turns: Sequence[Turn], standing: Edits, cut: Callable[[Message], str | None], reason: str
) -> list[Edit]:
    """Return one edit for each assistant message of which a command gets shorter."""
    edits = []
    for turn in turns:
        shorter = {
            m.index: text
            for m in turn.observations
            if m.is_prunable and (text := cut(m)) is not None
        }
        edit = cut_commands(turn, standing, shorter, reason) if shorter else None
        if edit is not None:
            edits.append(edit)
    return edits
