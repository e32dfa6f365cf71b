"""The client's list as the arm shows it: its own messages, changed only where an edit says so.

Every field that nobody asked about passes as it came. The counterpart for our own runs, whose
messages have no other fields, is `views.trajectory.view_messages`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.proxying.client_list import ClientMessage
from pipeline.views.trajectory import Edits, Part

CLIENT = "client"
"""Reason of the edits that record what the client itself changed; its list shows them already."""

TEXT_REASONING = ("reasoning_content", "reasoning")
_REASONING = (*TEXT_REASONING, "reasoning_details", "thinking_blocks", "provider_specific_fields")


def shown_list(messages: Sequence[ClientMessage], edits: Edits) -> list[ClientMessage]:
    """Return the messages with `edits` laid over them; what no edit names is the same object."""
    edits = {key: edit for key, edit in edits.items() if edit.reason != CLIENT}
    edited = {index for index, _ in edits}
    shown: list[ClientMessage] = []
    for index in range(len(messages) + 1):
        inserted = edits.get((index, Part.INSERTED))
        if inserted is not None:
            shown.append({"role": "user", "content": inserted.text})
        if index < len(messages) and (index, Part.DROPPED) not in edits:
            message = messages[index]
            shown.append(_edited(message, index, edits) if index in edited else message)
    return shown


def _edited(message: ClientMessage, index: int, edits: Edits) -> dict[str, Any]:
    shown = dict(message)
    content = edits.get((index, Part.CONTENT))
    if content is not None:
        shown["content"] = _in_the_form_of(message.get("content"), content.text)
    reasoning = edits.get((index, Part.REASONING))
    if reasoning is not None:
        named = next((name for name in TEXT_REASONING if name in message), TEXT_REASONING[0])
        shown = {name: value for name, value in shown.items() if name not in _REASONING}
        if reasoning.text:
            shown[named] = reasoning.text
    calls = edits.get((index, Part.TOOL_CALLS))
    if calls is not None:
        shown["tool_calls"] = _with_arguments(message["tool_calls"], json.loads(calls.text))
    return shown


def _in_the_form_of(content: object, text: str) -> object:
    """Return a content of `text`: a part where there were parts, with their cache marker."""
    if not isinstance(content, list):
        return text
    marks = [p["cache_control"] for p in content if isinstance(p, Mapping) and "cache_control" in p]
    mark = {"cache_control": marks[-1]} if marks else {}
    return [{"type": "text", "text": text, **mark}]


def _with_arguments(
    calls: Sequence[Mapping[str, Any]], edited: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the client's calls with the arguments of the edited ones."""
    arguments = {call["id"]: call["function"]["arguments"] for call in edited}
    return [
        {**call, "function": {**call["function"], "arguments": arguments[call["id"]]}}
        if call.get("id") in arguments and "function" in call
        else call
        for call in calls
    ]
