"""mini-SWE-agent trajectory files, written, and our own ones read back whole.

The file is one that mini's inspector opens: raw messages, actions, usage. What mini has no key for
(calls, edits, plan events) lies under `info.planprune`, a message's own facts under
`extra.planprune`, so that nothing is lost on the way back.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pipeline.records.foreign.mini import FORMAT, text_of, tool_calls_of
from pipeline.records.journal import RUN_JSON
from pipeline.records.rows import STEP
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.views.shown import STANDING_REASONS
from pipeline.views.trajectory import Edit, Message, tool_calls_as_sent

OURS = "planprune"
"""The key under which our own facts lie."""

_IN_MINI = frozenset(
    {"index", "role", "content", "reasoning", "tool_calls", "tool_call_id", "output"},
)
_DEFAULTS: dict[str, Any] = {
    "reasoning_tokens": 0,
    "n_tokens": 0,
    "n_lines": 0,
    "dropped_bytes": 0,
    "undecodable_bytes": 0,
    "waited_s": None,
    "tool": None,
    "command": None,
    "returncode": None,
    "output_start": None,
}


def mini_from_record(record: RunRecord) -> dict[str, Any]:
    """Return the trajectory file of a run, as JSON data."""
    replies = {c.step_index: c for c in record.calls if c.kind == STEP and c.reply is None}
    edits = _arms_edits(record)
    messages = [
        _mini_message(m, record, replies.get(m.step_index), edits.get(m.index, []))
        for m in record.messages
    ]
    ending = {"exit_status": record.exit_status, "submission": record.submission}
    messages.append({"role": "exit", "content": record.submission, "extra": ending})
    ours = RUN_JSON.dump_python(record, mode="json", exclude_defaults=True)
    ours.pop("messages", None)
    return {
        "info": {
            "model_stats": {"instance_cost": 0.0, "api_calls": len(record.calls)},
            "config": {"agent": {}, "model": {"model_name": record.model}, "environment": {}},
            "mini_version": record.versions.get("mini-swe-agent", "unknown"),
            **ending,
            OURS: ours,
        },
        "messages": messages,
        "trajectory_format": FORMAT,
        "instance_id": record.instance_id,
    }


def record_from_export(data: Mapping[str, Any]) -> RunRecord | None:
    """Return the record of a file that `mini_from_record` made; None for any other.

    Raises:
        ValueError: our part of the file is damaged.
    """
    info = data.get("info")
    ours = info.get(OURS) if isinstance(info, Mapping) else None
    if ours is None:
        return None
    minis = [m for m in data["messages"] if m["role"] != "exit"]
    messages = [_message_of(index, mini) for index, mini in enumerate(minis)]
    record = RUN_JSON.validate_python({**ours, "messages": ()})
    return RunRecord(
        **{f.name: getattr(record, f.name) for f in fields(RunRecord) if f.name != "messages"},
        messages=tuple(messages),
    )


def _mini_message(
    message: Message, record: RunRecord, call: CallRecord | None, edits: list[list[Any]]
) -> dict[str, Any]:
    mini: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        mini["reasoning_content"] = message.reasoning
    if message.tool_calls:
        mini["tool_calls"] = tool_calls_as_sent(message.tool_calls)
    if message.tool_call_id is not None:
        mini["tool_call_id"] = message.tool_call_id
    ours = {
        f.name: getattr(message, f.name)
        for f in fields(Message)
        if f.name not in _IN_MINI and getattr(message, f.name) != _DEFAULTS.get(f.name, "")
    }
    extra: dict[str, Any] = {OURS: ours | ({"edits": edits} if edits else {})}
    if message.role == "assistant":
        extra["actions"] = _actions(message, record)
        if call is not None:
            extra["response"] = {"model": record.model, "usage": _usage(call)}
    elif message.is_observation:
        extra["returncode"] = message.returncode
        if message.output is not None:
            extra["raw_output"] = message.output
    return mini | {"extra": extra}


def _actions(message: Message, record: RunRecord) -> list[dict[str, Any]]:
    """Return what the assistant asked for, by the results that came."""
    actions = []
    for result in record.messages[message.index + 1 :]:
        if not result.is_observation or result.step_index != message.step_index:
            break
        action = {"command": result.command or "", "tool": result.tool}
        if result.tool_call_id is not None:
            action["tool_call_id"] = result.tool_call_id
        actions.append(action)
    return actions


def _usage(call: CallRecord) -> dict[str, Any]:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": call.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": call.reasoning_tokens},
    }


def _arms_edits(record: RunRecord) -> dict[int, list[list[Any]]]:
    """Return the arm's edits by message, for readers: call, part, text, reason."""
    found: dict[int, list[list[Any]]] = {}
    for index, call in enumerate(record.calls):
        for edit in call.edits:
            if edit.reason not in STANDING_REASONS:
                found.setdefault(edit.message_index, []).append(_edit_for_readers(index, edit))
    return found


def _edit_for_readers(call_index: int, edit: Edit) -> list[Any]:
    return [call_index, edit.part.value, edit.text, edit.reason]


def _message_of(index: int, mini: Mapping[str, Any]) -> Message:
    ours = {k: v for k, v in mini["extra"][OURS].items() if k != "edits"}
    return Message(
        index=index,
        role=mini["role"],
        content=text_of(mini["content"]),
        reasoning=mini.get("reasoning_content"),
        tool_calls=tool_calls_of(mini),
        tool_call_id=mini.get("tool_call_id"),
        output=mini["extra"].get("raw_output"),
        **ours,
    )
