"""Columns that hold JSON text, both ways: tool calls as sent, and the changes of a view."""

import json
from typing import Any

from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Edit, Part, ToolCall, tool_calls_as_sent


def json_text(value: Any) -> str:
    """Return compact JSON; key order is kept, since it is part of what was sent."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def tool_calls_text(calls: tuple[ToolCall, ...]) -> str | None:
    """Return tool calls as JSON, as sent; None without any."""
    return json_text(tool_calls_as_sent(calls)) if calls else None


def tool_calls_from(text: str | None) -> tuple[ToolCall, ...]:
    """Return what `tool_calls_text` wrote."""
    return tuple(
        ToolCall(
            id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
        )
        for call in json.loads(text or "[]")
    )


def view_edits_of(call: CallRecord) -> str | None:
    """Return the `view_edits` column; None where the call changed nothing."""
    parts: dict[str, Any] = {}
    if call.edits:
        parts["edits"] = [_edit_json(e) for e in call.edits]
    if call.transient:
        parts["transient"] = [_edit_json(e) for e in call.transient]
    if call.messages is not None:
        parts["messages"] = list(call.messages)
    return json_text(parts) if parts else None


def _edit_json(edit: Edit) -> list[Any]:
    return [edit.message_index, edit.part.value, edit.text, edit.reason]


def edit_from(values: list[Any]) -> Edit:
    """Return the edit that `view_edits` holds as a list."""
    index, part, text, reason = values
    return Edit(message_index=index, part=Part(part), text=text, reason=reason)
