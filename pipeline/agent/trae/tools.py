"""Trae agent's other tools: a shell that must be restarted after a timeout, thinking, the end."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.agent.bash_tool import BASH, BashTool, with_focus
from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views import thoughts
from pipeline.views.policy import RequestedToolCall


def _schema(
    name: str, description: str, properties: Mapping[str, Any], required: Sequence[str]
) -> Mapping[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


BASH_SCHEMA = _schema(
    BASH,
    "Run a bash command and see its output. Every command starts in a new shell: `cd` and variables"
    " do not last, files do. A command that takes too long is stopped, and then the tool must be"
    " restarted.",
    {
        "command": {"type": "string", "description": "The command to run."},
        "restart": {"type": "boolean", "description": "Restart the tool instead."},
    },
    required=("command",),
)
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


class SequentialThinking:
    """`sequentialthinking`: the model writes a thought down, and goes on."""

    name = thoughts.TOOL
    schema = _schema(
        name,
        "Think a hard problem through in numbered thoughts. A thought may revise an earlier one, or"
        " begin a branch at it; the number of thoughts may change on the way.",
        {
            thoughts.ARGUMENT: {"type": "string", "description": "This thought."},
            "next_thought_needed": {"type": "boolean", "description": "Whether one follows."},
            "thought_number": {"type": "integer", "description": "From 1."},
            "total_thoughts": {"type": "integer", "description": "So many you expect to need."},
            "is_revision": {"type": "boolean", "description": "Whether it revises another."},
            "revises_thought": {"type": "integer", "description": "The one it revises."},
            "branch_from_thought": {"type": "integer", "description": "Where its branch begins."},
            "branch_id": {"type": "string", "description": "The branch's name."},
            "needs_more_thoughts": {"type": "boolean", "description": "Whether it takes more."},
        },
        required=(thoughts.ARGUMENT, "next_thought_needed", "thought_number", "total_thoughts"),
    )

    def __init__(self) -> None:
        self._n_thoughts = 0
        self._branches: list[str] = []

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Return a status as JSON; the thought itself is not repeated."""
        given = action.arguments or {}
        wrong = [
            name for name, is_right in _THOUGHT_FIELDS.items() if not is_right(given.get(name))
        ]
        if wrong:
            said = f"This is no thought: {', '.join(wrong)} must be given, as the tool says."
            return ToolResult(output=said, returncode=1)
        self._n_thoughts += 1
        branch = given.get("branch_id")
        if given.get("branch_from_thought") and branch and str(branch) not in self._branches:
            self._branches.append(str(branch))
        status = {
            "thought_number": given["thought_number"],
            "total_thoughts": max(given["thought_number"], given["total_thoughts"]),
            "next_thought_needed": given["next_thought_needed"],
            "branches": self._branches,
            "thought_history_length": self._n_thoughts,
        }
        return ToolResult(output=json.dumps(status))

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the tool and the thought: no files, and no shell's words, are in it."""
        return shlex.join([self.name, str(arguments.get(thoughts.ARGUMENT, ""))])


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


_THOUGHT_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    thoughts.ARGUMENT: lambda value: isinstance(value, str),
    "next_thought_needed": lambda value: isinstance(value, bool),
    "thought_number": _is_count,
    "total_thoughts": _is_count,
}
"""What every thought has, and what it must be."""


TASK_DONE = "task_done"
ANSWER = "answer"
"""The argument of `task_done` that holds the answer, where a run submits one."""


class TaskDone:
    """`task_done`: whether the task is done, the loop decides."""

    name = TASK_DONE

    def __init__(self, *, answers: bool = False) -> None:
        text = {"type": "string", "description": "The answer in full: nothing else is read."}
        self.schema = _schema(
            TASK_DONE,
            "Say that the task is done. Verify the solution first: nothing can be done afterwards.",
            {ANSWER: text} if answers else {},
            required=(ANSWER,) if answers else (),
        )

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Return that it was heard."""
        return ToolResult(output="Noted.")

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the tool's name."""
        return self.name
