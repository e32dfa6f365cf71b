"""The only translator between the message dicts of mini's agent and the trajectory, in a live run.

Owns the keys under which our facts travel in a dict's `extra`. Does not decide what is shown
(policies do) nor talk to anyone. mini's trajectory files are `records.mini_traj`'s.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.agent.actions import Action
from pipeline.protocols import ChatReply, TokenCounter
from pipeline.records.trajectory import Message, ToolCall, tool_calls_as_sent

MiniMessage = dict[str, Any]

EXIT_ROLE = "exit"
"""Role of mini's closing message, which is no part of the conversation."""


# --- ours to mini --------------------------------------------------------------------------------
def assistant_dict(reply: ChatReply, actions: Sequence[Action]) -> MiniMessage:
    """Return the reply as the message that mini's agent keeps."""
    message: MiniMessage = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["reasoning"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = tool_calls_as_sent(
            [
                # Chat templates parse the arguments again, and an empty text is no JSON.
                ToolCall(id=c.id, name=c.name, arguments=c.arguments or "{}")
                for c in reply.tool_calls
            ]
        )
    message["extra"] = {
        "actions": [_action_dict(a.tool, a.command, a.tool_call_id) for a in actions],
        "cost": 0.0,
    }
    return message


def observation_dict(
    action: Action,
    content: str,
    *,
    returncode: int | None,
    dropped_bytes: int = 0,
    undecodable_bytes: int = 0,
    output: str | None = None,
    output_start: int | None = None,
) -> MiniMessage:
    """Return the result of `action`: a tool message, or a user message in text mode.

    `output` is what the action printed, and `output_start` where it stands in `content`.
    """
    message: MiniMessage = {"role": "user", "content": content}
    if action.tool_call_id is not None:
        message |= {"role": "tool", "tool_call_id": action.tool_call_id}
    message["extra"] = {
        "tool": action.tool,
        "command": action.command,
        "returncode": returncode,
        "dropped_bytes": dropped_bytes,
        "undecodable_bytes": undecodable_bytes,
        "output": output,
        "output_start": output_start,
    }
    return message


def _action_dict(tool: str, command: str, tool_call_id: str | None) -> dict[str, Any]:
    action: dict[str, Any] = {"tool": tool, "command": command}
    return action if tool_call_id is None else action | {"tool_call_id": tool_call_id}


# --- mini to ours --------------------------------------------------------------------------------
def message_from_mini(
    mini: Mapping[str, Any], *, index: int, step_index: int, counter: TokenCounter
) -> Message:
    """Return mini's message as the trajectory's next one; its tokens are counted here, once."""
    extra = mini.get("extra") or {}
    content = mini.get("content") or ""
    reasoning = mini.get("reasoning")
    calls = tool_calls_of(mini)
    call_tokens = sum(counter.count(c.name) + counter.count(c.arguments) for c in calls)
    return Message(
        index=index,
        step_index=step_index,
        role=mini["role"],
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        tool_call_id=mini.get("tool_call_id"),
        tool=extra.get("tool"),
        command=extra.get("command"),
        returncode=extra.get("returncode"),
        n_tokens=counter.count(content) + call_tokens,
        reasoning_tokens=counter.count(reasoning) if reasoning else 0,
        n_lines=len(content.splitlines()),
        dropped_bytes=extra.get("dropped_bytes", 0),
        undecodable_bytes=extra.get("undecodable_bytes", 0),
        output=extra.get("output"),
        output_start=extra.get("output_start"),
    )


def tool_calls_of(mini: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tool calls of a chat message, as sent."""
    return tuple(
        ToolCall(
            id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
        )
        for call in mini.get("tool_calls") or ()
    )
