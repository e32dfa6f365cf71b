"""The tool `bash`: one command in a new shell of the sandbox."""

from collections.abc import Mapping
from typing import Any

from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views.focus import FOCUS_ARGUMENT
from pipeline.views.policy import RequestedToolCall

BASH = "bash"

BASH_SCHEMA: Mapping[str, Any] = {
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

HALF_CHARACTER = (
    "The command holds half of a surrogate pair, a character that UTF-8 cannot hold and no shell "
    "can be given; nothing was run."
)
"""Such a command is not run without the character: it would be another command."""

_FOCUS_PROPERTY: Mapping[str, str] = {
    "type": "string",
    "description": (
        "Optional. What you want to learn from the output, as a whole question that can be answered"
        " from its lines alone. Lines that do not help to answer it are left out. Give none to see"
        " all of the output, as for tests and logs."
    ),
}


def with_focus(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's schema with the optional question that a line pruner goes by."""
    function = schema["function"]
    properties = {**function["parameters"]["properties"], FOCUS_ARGUMENT: _FOCUS_PROPERTY}
    parameters = {**function["parameters"], "properties": properties}
    return {**schema, "function": {**function, "parameters": parameters}}


class BashTool:
    """Runs commands in the sandbox."""

    name = BASH

    def __init__(
        self, *, timeout_s: float, asks_focus: bool, whole_after: bytes | None = None
    ) -> None:
        """Make the tool; output whose first line is `whole_after` is kept whole."""
        self.schema = with_focus(BASH_SCHEMA) if asks_focus else BASH_SCHEMA
        self._timeout_s, self._whole_after = timeout_s, whole_after

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:
        """Return what the command left behind."""
        result = sandbox.execute(
            action.command, timeout_s=self._timeout_s, whole_after=self._whole_after
        )
        return ToolResult(output=result.output, returncode=result.returncode, command=result)

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:
        """Return the command."""
        if call.lone_surrogates:
            raise ValueError(HALF_CHARACTER)
        command = arguments.get("command")
        if not isinstance(command, str):
            raise ValueError("The bash tool needs the argument `command`, a text.")  # noqa: TRY004
        return command
