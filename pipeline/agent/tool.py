"""Tools as objects, and what a reply asks of them: actions, or the reason why it cannot be done.

Owns the forms of an action and of its result, and the reading of tool calls. Scaffolds bring their
own tools and the session those of the experiment (the plan, the arm's); how models without tool
calls ask is the scaffold's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.agent.planctl import PlanChange
from pipeline.protocols import ChatReply, CommandResult, Sandbox
from pipeline.views.policy import RequestedToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One use of a tool."""

    tool: str
    command: str
    """What `messages.command` says: `Tool.as_command` of a call, or the line of a text reply."""
    arguments: Mapping[str, Any] | None = None
    """A tool call's; None in a text reply, where `command` is all there is."""
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What came of an action, before any template."""

    output: str
    returncode: int = 0
    command: CommandResult | None = None
    """Of a tool that ran one command, with the whole stream where that was asked for."""
    plan_changes: tuple[PlanChange, ...] = ()


class Tool(Protocol):
    """One tool of a run; it may keep state."""

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The entry of the request's tool list."""
        ...

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:
        """Carry `action` out. A use that fails is a result; only a broken sandbox raises."""
        ...

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:
        """Return the shell command that a call amounts to, which policies and labels go by.

        Args:
            arguments: the call's, read.
            call: the call; a tool that is like no command returns its arguments as written.

        Raises:
            ValueError: the arguments cannot be used; the message tells the model why.
        """
        ...


class BadReplyError(Exception):
    """A reply that cannot be carried out; `error` tells the model why."""

    def __init__(self, error: str, finish_reason: str | None) -> None:
        super().__init__(error)
        self.error = error
        self.finish_reason = finish_reason


def actions_from_calls(reply: ChatReply, tools: Mapping[str, Tool]) -> list[Action]:
    """Return the actions of a reply's tool calls, in order.

    Raises:
        BadReplyError: no call at all, an unknown tool, or arguments that it cannot use.
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
        try:
            command = tools[call.name].as_command(arguments, call)
        except ValueError as error:
            raise BadReplyError(str(error), reply.finish_reason) from error
        actions.append(
            Action(tool=call.name, command=command, arguments=arguments, tool_call_id=call.id)
        )
    return actions
