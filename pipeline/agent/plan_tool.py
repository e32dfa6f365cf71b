"""`planctl` as a model writes it: the tool's schema, its JSON arguments, its text-mode lines.

Owns the reading of requests and forgives what is clear: a number as text, titles as one string.
What a request does to a plan is `planctl.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.agent.planctl import TOOL_NAME, Plan, PlanError, PlanMove, PlanRequest, moved, refused
from pipeline.agent.tool import Action, ToolResult
from pipeline.protocols import Sandbox
from pipeline.views.policy import RequestedToolCall

PLANCTL_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": (
            "Keep your plan: a few steps, exactly one of which is active while you work. "
            "set: make the plan from `steps`. start: make `step` the active one. "
            "complete: mark the active step done, with a one-line `outcome`. "
            "add: append a step called `title`. drop, rename: change `step` while it is not done. "
            "show: only show the plan. Every call returns the whole plan."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["set", "start", "complete", "add", "drop", "rename", "show"],
                },
                "steps": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Titles of the steps, in order (set).",
                },
                "step": {"type": "integer", "description": "Number of a step, from 1."},
                "title": {"type": "string", "description": "Title of a step (add, rename)."},
                "outcome": {
                    "type": "string",
                    "description": "What came of the step, in one line (complete).",
                },
            },
            "required": ["action"],
        },
    },
}


class PlanTool:
    """The tool, with the run's plan."""

    name = TOOL_NAME
    schema = PLANCTL_TOOL

    def __init__(self) -> None:
        self._plan = Plan()

    def run(self, action: Action, sandbox: Sandbox) -> ToolResult:  # noqa: ARG002
        """Make a move; an illegal one changes nothing and says what is allowed."""
        if action.arguments is None:
            move = answer_line(self._plan, action.command)
        else:
            move = answer_arguments(self._plan, action.arguments)
        self._plan = move.plan
        return ToolResult(
            output=move.text, returncode=0 if move.ok else 1, plan_changes=move.changes
        )

    def as_command(self, arguments: Mapping[str, Any], call: RequestedToolCall) -> str:  # noqa: ARG002
        """Return the arguments as written."""
        return call.arguments or "{}"


def answer_arguments(plan: Plan, arguments: Mapping[str, Any]) -> PlanMove:
    """Return the move that a tool call's arguments ask for. Never raises."""
    try:
        request = PlanRequest(
            action=_text(arguments, "action").lower(),
            steps=_titles(arguments.get("steps")),
            step=_number(arguments.get("step")),
            title=_text(arguments, "title"),
            outcome=_text(arguments, "outcome"),
        )
    except PlanError as error:
        return refused(plan, str(error))
    return moved(plan, request)


def answer_line(plan: Plan, line: str) -> PlanMove:
    """Return the move that a text-mode line (`planctl start 2`) asks for. Never raises."""
    words = line.split(maxsplit=2)
    action = words[1].lower() if len(words) > 1 else ""
    rest = words[2].strip() if len(words) > 2 else ""
    try:
        read = _LINE_READERS.get(action, _read_nothing)
        request = read(action, rest)
    except PlanError as error:
        return refused(plan, str(error))
    return moved(plan, request)


# --- JSON arguments ------------------------------------------------------------------------------
def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PlanError(f"`{name}` must be a text")
    return value.strip()


def _titles(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.replace("|", "\n").splitlines())
    if isinstance(value, list) and all(isinstance(title, str) for title in value):
        return tuple(value)
    raise PlanError("`steps` must be a list of titles")


def _number(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise PlanError("`step` must be the number of a step")


# --- text-mode lines -----------------------------------------------------------------------------
def _read_nothing(action: str, _rest: str) -> PlanRequest:
    return PlanRequest(action=action)


def _read_set(action: str, rest: str) -> PlanRequest:
    return PlanRequest(action=action, steps=tuple(rest.split("|")))


def _read_number(action: str, rest: str) -> PlanRequest:
    return PlanRequest(action=action, step=_number(rest.split()[0]) if rest else None)


def _read_complete(action: str, rest: str) -> PlanRequest:
    # `complete 2` names a step; `complete 2 tests pass now` is an outcome.
    if rest.isdecimal():
        return PlanRequest(action=action, step=_number(rest))
    return PlanRequest(action=action, outcome=rest)


def _read_title(action: str, rest: str) -> PlanRequest:
    return PlanRequest(action=action, title=rest)


def _read_rename(action: str, rest: str) -> PlanRequest:
    number, _, title = rest.partition(" ")
    return PlanRequest(action=action, step=_number(number) if number else None, title=title.strip())


_LINE_READERS: Mapping[str, Callable[[str, str], PlanRequest]] = {
    "set": _read_set,
    "start": _read_number,
    "complete": _read_complete,
    "add": _read_title,
    "drop": _read_number,
    "rename": _read_rename,
}
