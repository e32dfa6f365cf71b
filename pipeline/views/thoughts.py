"""Thoughts that a model writes down as an argument of a tool: reasoning like any other."""

import json
from collections.abc import Callable

from pipeline.views.trajectory import Edit, Message, Part, tool_calls_as_sent

TOOL = "sequentialthinking"
ARGUMENT = "thought"


def thought_edit(
    message: Message, reason: str, change: Callable[[str], str] = lambda _: ""
) -> Edit | None:
    """Return the edit that makes `change` to an assistant's thoughts; None where it has none.

    The calls stay, so that each result has its own.
    """
    calls = tool_calls_as_sent(message.tool_calls)
    found = False
    for call in calls:
        if call["function"]["name"] != TOOL:
            continue
        arguments = json.loads(call["function"]["arguments"])
        if arguments.get(ARGUMENT):
            found = True
            arguments[ARGUMENT] = change(str(arguments[ARGUMENT]))
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    if not found:
        return None
    text = json.dumps(calls, ensure_ascii=False)
    return Edit(message_index=message.index, part=Part.TOOL_CALLS, text=text, reason=reason)
