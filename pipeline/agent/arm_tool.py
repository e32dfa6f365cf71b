"""The tools that an arm adds to the list, as they answer in an ordinary turn.

The cleanup turn is none of this: there the model's choice goes to the arm's policy and no result
is shown.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Trajectory

ToolAnswer = Callable[[Trajectory, str, str], str | None]
"""(trajectory, tool name, arguments as written) -> result text; None where it may not act now."""


class ArmTool:
    """One of them."""

    def __init__(
        self, schema: Mapping[str, Any], answer: ToolAnswer | None, trajectory: Trajectory
    ) -> None:
        self.name: str = schema["function"]["name"]
        self.schema = schema
        self._answer, self._trajectory = answer, trajectory

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Return the arm's answer."""
        text = None
        if self._answer is not None:
            text = self._answer(self._trajectory, self.name, action.command)
        if text is None:
            return ToolResult(output=not_now(self.name), returncode=1)
        return ToolResult(output=text)

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the arguments as written."""
        return call.arguments or "{}"


def not_now(tool: str) -> str:
    """Return what the model is told when it calls a tool that may only be used when asked for."""
    return (
        f"{tool} can only be used when you are asked to clean up, which happens after a plan step"
        " is completed. Nothing was changed; go on with the task."
    )
