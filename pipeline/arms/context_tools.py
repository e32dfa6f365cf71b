"""The context tools of an arm: what the model is offered, and what an ordinary call answers.

The tool list is rendered into the cached prefix, so it is the same on every call of a run. What a
call prunes is the policy's to decide; here it only gets its answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.arms.parameters import Parameters
from pipeline.views import prune_tool, recall_tool
from pipeline.views.trajectory import Trajectory

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    prune_tool.NAME: prune_tool.SCHEMA,
    recall_tool.NAME: recall_tool.SCHEMA,
}

ContextTool = Callable[[Trajectory, str, str], str | None]
"""(trajectory, tool, arguments as written) -> the result's text; None where it may not act now."""


def tool_schemas(arm: Parameters) -> tuple[Mapping[str, Any], ...]:
    """Return the tools that the arm adds to the list, in a fixed order."""
    return tuple(SCHEMAS[name] for name in arm.tools)


def context_tool(arm: Parameters) -> ContextTool | None:
    """Return what answers the arm's own tools in an ordinary turn; None where it has none."""
    if not arm.tools:
        return None

    def answered(trajectory: Trajectory, tool: str, arguments: str) -> str | None:
        if tool == recall_tool.NAME and tool in arm.tools:
            return recall_tool.recalled_text(arguments, trajectory)
        if tool == prune_tool.NAME and arm.prunes_anytime:
            answer = prune_tool.answer_from_command(arguments)
            if not answer.ids:
                return "No output was named, so none is removed."
            return f"Outputs named for removal: {', '.join(map(str, answer.ids))}."
        return None

    return answered
