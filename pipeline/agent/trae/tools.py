"""Trae agent's other tools: a shell that must be restarted after a timeout, thinking, the end."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.agent.bash_tool import BASH, BashTool, with_focus
from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views.policy import RequestedToolCall

BASH_SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": BASH,
        "description": (
            "Run a bash command and see its output. Every command starts in a new shell: `cd` and"
            " variables do not last, files do. A command that takes too long is stopped, and then"
            " the tool must be restarted."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command to run."},
                "restart": {"type": "boolean", "description": "Restart the tool instead."},
            },
            "required": ["command"],
        },
    },
}
NEEDS_RESTART = "The tool is not usable since a command timed out; call it with restart: true."
RESTARTED = "The tool was restarted."


class RestartedBash:
    """`bash` that answers nothing after a timeout until it is restarted."""

    name = BASH

    def __init__(self, *, timeout_s: float, asks_focus: bool) -> None:
        self.schema = with_focus(BASH_SCHEMA) if asks_focus else BASH_SCHEMA
        self._bash = BashTool(timeout_s=timeout_s, asks_focus=asks_focus)
        self._timed_out = False

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:
        """Return what the command left behind."""
        if (action.arguments or {}).get("restart"):
            self._timed_out = False
            return ToolResult(output=RESTARTED)
        if self._timed_out:
            return ToolResult(output=NEEDS_RESTART, returncode=1)
        result = self._bash.run(action, sandbox)
        self._timed_out = result.command is not None and result.command.timed_out
        return result

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:
        """Return the command; a restart is none."""
        return ": restart" if arguments.get("restart") else self._bash.as_command(arguments, call)


_SAID = ("thought", "answer")
"""Arguments that a status does not repeat."""


class _Noted:
    """A tool whose call is all there is to it."""

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        function = {"name": name, "description": description, "parameters": parameters}
        self.schema: Mapping[str, Any] = {"type": "function", "function": function}

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Return a status as JSON."""
        given = {k: v for k, v in (action.arguments or {}).items() if k not in _SAID}
        return ToolResult(output=json.dumps({"status": "noted", **given}))

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the arguments as written."""
        return call.arguments or "{}"


def sequential_thinking() -> _Noted:
    """Return the tool `sequentialthinking`: the model writes a thought down, and goes on."""
    number = {"type": "integer", "minimum": 1}
    return _Noted(
        "sequentialthinking",
        "Think a hard problem through in numbered thoughts; each may revise an earlier one.",
        {
            "type": "object",
            "properties": {
                "thought": {"type": "string", "description": "This thought."},
                "next_thought_needed": {"type": "boolean", "description": "Whether one follows."},
                "thought_number": number,
                "total_thoughts": {**number, "description": "So many you expect to need."},
                "is_revision": {"type": "boolean"},
                "revises_thought": number,
            },
            "required": ["thought", "next_thought_needed", "thought_number", "total_thoughts"],
        },
    )


TASK_DONE = "task_done"
ANSWER = "answer"
"""The argument of `task_done` that holds the answer, where a run submits one."""


def task_done(*, answers: bool = False) -> _Noted:
    """Return the tool `task_done`; whether the task is done, the loop decides."""
    text = {"type": "string", "description": "The answer in full: nothing else is read."}
    return _Noted(
        TASK_DONE,
        "Say that the task is done. Verify the solution first: nothing can be done afterwards.",
        {"type": "object", "properties": {ANSWER: text}, "required": [ANSWER]}
        if answers
        else {"type": "object", "properties": {}},
    )
