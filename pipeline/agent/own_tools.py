"""The harness's own tools in an ordinary turn: the plan, and whatever the arm offers beside it.

Owns the run's plan and the answers to these tools. The cleanup turn is none of this: there the
model's choice goes to the arm's policy and no result is shown.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.agent.plan_tool import answer_arguments, answer_line
from pipeline.agent.planctl import TOOL_NAME, Plan, PlanChange, PlanMove
from pipeline.records.trajectory import Trajectory

ContextTool = Callable[[Trajectory, str, str], str | None]
"""(trajectory, tool name, arguments as written) -> result text; None where it may not act now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolAnswer:
    """What the model reads, and what it did to the plan."""

    text: str
    returncode: int
    plan_changes: tuple[PlanChange, ...] = ()


class OwnTools:
    """Answers `planctl` and the arm's context tools."""

    def __init__(self, context_tool: ContextTool | None = None) -> None:
        self.plan = Plan()
        self._context_tool = context_tool

    def answer(
        self, tool: str, command: str, trajectory: Trajectory, *, is_call: bool
    ) -> ToolAnswer:
        """Return the answer to one use of a tool; `is_call` tells JSON arguments from a line."""
        if tool == TOOL_NAME:
            move = self._moved(command, is_call=is_call)
            return ToolAnswer(
                text=move.text, returncode=0 if move.ok else 1, plan_changes=move.changes
            )
        text = None
        if self._context_tool is not None:
            text = self._context_tool(trajectory, tool, command)
        if text is None:
            return ToolAnswer(text=not_now(tool), returncode=1)
        return ToolAnswer(text=text, returncode=0)

    def _moved(self, command: str, *, is_call: bool) -> PlanMove:
        if is_call:
            move = answer_arguments(self.plan, json.loads(command))
        else:
            move = answer_line(self.plan, command)
        self.plan = move.plan
        return move


def not_now(tool: str) -> str:
    """Return what the model is told when it calls a tool that may only be used when asked for."""
    return (
        f"{tool} can only be used when you are asked to clean up, which happens after a plan step"
        " is completed. Nothing was changed; go on with the task."
    )
