"""The tools that an arm adds to the list, as they answer in an ordinary turn.

The cleanup turn is none of this: there the model's choice goes to the arm's policy and no result
is shown.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Trajectory


class ArmTool:
    """One of them, in a run."""

    def __init__(self, offered: OfferedTool, trajectory: Trajectory) -> None:
        self.name, self.schema = offered.name, offered.schema
        self._answer, self._trajectory = offered.answer, trajectory

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Return the arm's answer."""
        answered = self._answer(self._trajectory, action.command)
        return ToolResult(output=answered.text, returncode=1 if answered.is_error else 0)

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the arguments as written."""
        return call.arguments or "{}"
