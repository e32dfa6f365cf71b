"""What the model asked for: a reply becomes actions, or the reason why it cannot.

Owns both forms of asking: tool calls, and fenced blocks for models without tool calls. Does not
carry anything out, and knows no plan: a `planctl` action is passed on as it was written.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.protocols import ChatReply
from pipeline.spec.line_pruner import FOCUS_ARGUMENT

BASH = "bash"

BASH_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": BASH,
        "description": "Run a bash command and see its output.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command to run."}},
            "required": ["command"],
        },
    },
}

_FOCUS_PROPERTY: Mapping[str, str] = {
    "type": "string",
    "description": (
        "Optional. What you want to learn from the output, as a whole question that can be answered"
        " from its lines alone. Lines that do not help to answer it are left out. Give none to see"
        " all of the output, as for tests and logs."
    ),
}


def bash_tool(*, asks_focus: bool) -> Mapping[str, Any]:
    """Return the bash tool's schema; `asks_focus` adds the optional question for a line pruner."""
    if not asks_focus:
        return BASH_TOOL
    function = BASH_TOOL["function"]
    properties = {**function["parameters"]["properties"], FOCUS_ARGUMENT: _FOCUS_PROPERTY}
    parameters = {**function["parameters"], "properties": properties}
    return {**BASH_TOOL, "function": {**function, "parameters": parameters}}


FENCE = "mswea_bash_command"
"""The info string of a fenced block that is an action, as in mini-SWE-agent's text mode."""

_HALF_CHARACTER = (
    "The command holds half of a surrogate pair, a character that UTF-8 cannot hold and no shell "
    "can be given; nothing was run."
)
"""Such a command is not run without the character: it would be another command."""

_BLOCK = re.compile(rf"```{FENCE}[ \t]*\n(.*?)\n?```", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One thing to do."""

    tool: str
    command: str
    """A shell command; for other tools a JSON object, or in text mode the line as written."""
    tool_call_id: str | None = None


class BadReplyError(Exception):
    """A reply that cannot be carried out; `error` tells the model why."""

    def __init__(self, error: str, finish_reason: str | None) -> None:
        super().__init__(error)
        self.error = error
        self.finish_reason = finish_reason


def actions_from_calls(reply: ChatReply, tools: Collection[str]) -> list[Action]:
    """Return the actions of a reply's tool calls, in order.

    Raises:
        BadReplyError: no call at all, an unknown tool, arguments that are no JSON object, or a
            command that no shell can be given.
    """
    if not reply.tool_calls:
        raise BadReplyError("The reply holds no tool call.", reply.finish_reason)
    actions = []
    for call in reply.tool_calls:
        if call.name not in tools:
            raise BadReplyError(f"There is no tool called {call.name!r}.", reply.finish_reason)
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise BadReplyError(
                f"The arguments of {call.name} are not valid JSON: {error}.", reply.finish_reason
            ) from error
        if not isinstance(arguments, dict):
            raise BadReplyError(
                f"The arguments of {call.name} are no JSON object.", reply.finish_reason
            )
        if call.name == BASH and call.lone_surrogates:
            raise BadReplyError(_HALF_CHARACTER, reply.finish_reason)
        command = arguments.get("command") if call.name == BASH else call.arguments or "{}"
        if not isinstance(command, str):
            raise BadReplyError(
                "The bash tool needs the argument `command`, a text.", reply.finish_reason
            )
        actions.append(Action(tool=call.name, command=command, tool_call_id=call.id))
    return actions


def actions_from_text(reply: ChatReply, tools: Collection[str], *, several: bool) -> list[Action]:
    """Return the actions of a reply's fenced blocks, in order.

    Lines at either end of a block that begin with the name of another tool (`planctl`) are
    actions of their own; what is between them is one shell command.

    Raises:
        BadReplyError: no block, more than one where only one is allowed, or a reply with half a
            character.
    """
    if reply.lone_surrogates:
        raise BadReplyError(_HALF_CHARACTER, reply.finish_reason)
    blocks = _BLOCK.findall(reply.content)
    if not blocks:
        raise BadReplyError(f"The reply holds no ```{FENCE} block.", reply.finish_reason)
    if len(blocks) > 1 and not several:
        raise BadReplyError(
            f"The reply holds {len(blocks)} ```{FENCE} blocks; give exactly one.",
            reply.finish_reason,
        )
    line_tools = [tool for tool in tools if tool != BASH]
    actions = [action for block in blocks for action in _block_actions(block, line_tools)]
    if not actions:
        raise BadReplyError("The block is empty.", reply.finish_reason)
    return actions


def _block_actions(block: str, line_tools: Sequence[str]) -> list[Action]:
    lines = block.strip().splitlines()
    before: list[Action] = []
    after: list[Action] = []
    while lines and (tool := _line_tool(lines[0], line_tools)):
        before.append(Action(tool=tool, command=lines.pop(0).strip()))
    while lines and (tool := _line_tool(lines[-1], line_tools)):
        after.insert(0, Action(tool=tool, command=lines.pop().strip()))
    command = "\n".join(lines).strip()
    return [*before, *([Action(tool=BASH, command=command)] if command else []), *after]


def _line_tool(line: str, line_tools: Sequence[str]) -> str | None:
    words = line.split(maxsplit=1)
    return words[0] if words and words[0] in line_tools else None
