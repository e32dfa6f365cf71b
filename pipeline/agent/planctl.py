"""The agent's plan: its steps, their states, the legal moves, and the tool that makes them.

Owns what a plan is and what may be done to it. A move is a pure function from a plan to a plan;
an illegal one changes nothing and says what is allowed instead, so that no answer of a model can
break a run. Does not know pruning: policies read the `PlanEvent`s.

Step numbers never change: a dropped step keeps its number and is no longer shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

TOOL_NAME = "planctl"

MAX_STEPS = 40
"""Steps a plan may ever have had; a model that loops on `add` must not grow the context."""
MAX_TITLE_CHARS = 200
MAX_OUTCOME_CHARS = 300


class StepState(StrEnum):
    """Where a plan step stands. Values are on disk."""

    TODO = "todo"
    ACTIVE = "active"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStep:
    """One step of the plan."""

    title: str
    state: StepState = StepState.TODO
    outcome: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The steps in order; step `n` is `steps[n - 1]`. At most one is active."""

    steps: tuple[PlanStep, ...] = ()

    def numbers(self, *states: StepState) -> list[int]:
        """Return the numbers of the steps in any of `states`."""
        return [n for n, step in enumerate(self.steps, start=1) if step.state in states]

    @property
    def active(self) -> int | None:
        """The number of the active step, if there is one."""
        numbers = self.numbers(StepState.ACTIVE)
        return numbers[0] if numbers else None

    def changed(self, number: int, **fields: Any) -> "Plan":
        """Return the plan with fields of step `number` replaced."""
        steps = list(self.steps)
        steps[number - 1] = replace(steps[number - 1], **fields)
        return Plan(steps=tuple(steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """One use of the tool, as the model meant it."""

    action: str
    steps: tuple[str, ...] = ()
    step: int | None = None
    title: str = ""
    outcome: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanChange:
    """What one move did to one step (0: the plan as a whole)."""

    action: str
    plan_step: int
    title: str
    status: str
    outcome: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanMove:
    """The answer to one use of the tool."""

    plan: Plan
    text: str
    """The result the model reads: the whole plan, after an error message if there is one."""
    changes: tuple[PlanChange, ...] = ()
    ok: bool = True


class PlanError(ValueError):
    """A request that is no legal move; the message says why."""


def moved(plan: Plan, request: PlanRequest) -> PlanMove:
    """Return what `request` makes of `plan`. Never raises: an illegal move changes nothing."""
    act = _ACTIONS.get(request.action)
    if act is None:
        return refused(plan, f"there is no action {request.action!r}")
    try:
        result = act(plan, request)
    except PlanError as error:
        return refused(plan, str(error))
    return PlanMove(plan=result.plan, changes=result.changes, text=shown_plan(result.plan))


def refused(plan: Plan, why: str) -> PlanMove:
    """Return the answer to a request that is not legal."""
    text = f"planctl: {why}.\nAllowed now: {'; '.join(allowed_moves(plan))}.\n{shown_plan(plan)}"
    return PlanMove(plan=plan, text=text, ok=False)


def shown_plan(plan: Plan) -> str:
    """Return the plan as the model sees it: one line a step."""
    visible = [(n, s) for n, s in enumerate(plan.steps, start=1) if s.state != StepState.DROPPED]
    if not visible:
        return "There is no plan yet."
    n_done = len(plan.numbers(StepState.DONE))
    lines = [f"Plan, {n_done} of {len(visible)} done:"]
    for number, step in visible:
        outcome = f" -> {step.outcome}" if step.outcome else ""
        lines.append(f"[{_MARKS[step.state]}] {number}. {step.title}{outcome}")
    return "\n".join(lines)


_MARKS = {StepState.TODO: " ", StepState.ACTIVE: ">", StepState.DONE: "x", StepState.DROPPED: "-"}


def allowed_moves(plan: Plan) -> list[str]:
    """Return the moves that are legal now, in words."""
    moves = []
    todo, active = plan.numbers(StepState.TODO), plan.active
    not_done = plan.numbers(StepState.TODO, StepState.ACTIVE)
    if _may_set(plan):
        moves.append("set (with at least one step)")
    if active is not None:
        moves.append(f"complete (step {active} is active)")
    elif todo:
        moves.append(f"start ({_listed(todo)})")
    if plan.steps and len(plan.steps) < MAX_STEPS:
        moves.append("add")
    if not_done:
        moves.append(f"rename ({_listed(not_done)})")
        if _n_kept(plan) > 1:
            moves.append(f"drop ({_listed(not_done)})")
    return [*moves, "show"]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _may_set(plan: Plan) -> bool:
    # A new plan may not hide work that was begun: revise that one instead.
    return not plan.numbers(StepState.ACTIVE, StepState.DONE)


def _n_kept(plan: Plan) -> int:
    return len(plan.steps) - len(plan.numbers(StepState.DROPPED))


# --- the moves -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class _Result:
    plan: Plan
    changes: tuple[PlanChange, ...] = field(default=())


def _set(plan: Plan, request: PlanRequest) -> _Result:
    if not _may_set(plan):
        raise PlanError("there is a plan that was begun; revise it with add, drop and rename")
    titles = [t for t in (_one_line(s, MAX_TITLE_CHARS) for s in request.steps) if t]
    if not titles:
        raise PlanError("a plan needs at least one step with a title")
    if len(titles) > MAX_STEPS:
        raise PlanError(f"{len(titles)} steps are too many; at most {MAX_STEPS}")
    whole = PlanChange(
        action="set", plan_step=0, title=" | ".join(titles), status=StepState.TODO.value
    )
    steps = [
        PlanChange(action="set", plan_step=number, title=title, status=StepState.TODO.value)
        for number, title in enumerate(titles, start=1)
    ]
    return _Result(
        plan=Plan(steps=tuple(PlanStep(title=t) for t in titles)), changes=(whole, *steps)
    )


def _start(plan: Plan, request: PlanRequest) -> _Result:
    number = _known_step(plan, request)
    state = plan.steps[number - 1].state
    if state is StepState.ACTIVE:
        raise PlanError(f"step {number} is active already")
    if state is StepState.DONE:
        raise PlanError(f"step {number} is done")
    if plan.active is not None:
        raise PlanError(
            f"step {plan.active} is active, and only one step can be; complete it first"
        )
    return _to_state(plan, number, "start", StepState.ACTIVE)


def _complete(plan: Plan, request: PlanRequest) -> _Result:
    active = plan.active
    if active is None:
        raise PlanError("no step is active, so none can be completed")
    if request.step not in (None, active):
        raise PlanError(f"step {request.step} is not active; step {active} is")
    outcome = _one_line(request.outcome or request.title, MAX_OUTCOME_CHARS)
    return _to_state(plan, active, "complete", StepState.DONE, outcome)


def _add(plan: Plan, request: PlanRequest) -> _Result:
    given = [request.title] if request.title else list(request.steps)
    titles = [t for t in (_one_line(s, MAX_TITLE_CHARS) for s in given) if t]
    if not plan.steps:
        raise PlanError("there is no plan to add to; use set")
    if not titles:
        raise PlanError("add needs the title of the new step")
    if len(plan.steps) + len(titles) > MAX_STEPS:
        raise PlanError(f"the plan has {len(plan.steps)} steps; at most {MAX_STEPS}")
    first = len(plan.steps) + 1
    changes = tuple(
        PlanChange(action="add", plan_step=number, title=title, status=StepState.TODO.value)
        for number, title in enumerate(titles, start=first)
    )
    steps = (*plan.steps, *(PlanStep(title=title) for title in titles))
    return _Result(plan=Plan(steps=steps), changes=changes)


def _drop(plan: Plan, request: PlanRequest) -> _Result:
    number = _unfinished_step(plan, request)
    if _n_kept(plan) == 1:
        raise PlanError("dropping the only step would leave an empty plan")
    return _to_state(plan, number, "drop", StepState.DROPPED)


def _rename(plan: Plan, request: PlanRequest) -> _Result:
    number = _unfinished_step(plan, request)
    title = _one_line(request.title, MAX_TITLE_CHARS)
    if not title:
        raise PlanError("rename needs the new title")
    state = plan.steps[number - 1].state
    change = PlanChange(action="rename", plan_step=number, title=title, status=state.value)
    return _Result(plan=plan.changed(number, title=title), changes=(change,))


def _show(plan: Plan, _request: PlanRequest) -> _Result:
    return _Result(plan=plan)


_ACTIONS: Mapping[str, Callable[[Plan, PlanRequest], _Result]] = {
    "set": _set,
    "start": _start,
    "complete": _complete,
    "add": _add,
    "drop": _drop,
    "rename": _rename,
    "show": _show,
}


def _to_state(plan: Plan, number: int, action: str, state: StepState, outcome: str = "") -> _Result:
    change = PlanChange(
        action=action,
        plan_step=number,
        title=plan.steps[number - 1].title,
        status=state.value,
        outcome=outcome,
    )
    return _Result(plan=plan.changed(number, state=state, outcome=outcome), changes=(change,))


def _known_step(plan: Plan, request: PlanRequest) -> int:
    number = request.step
    if number is None:
        raise PlanError(f"{request.action} needs the number of a step")
    if not 1 <= number <= len(plan.steps) or plan.steps[number - 1].state is StepState.DROPPED:
        raise PlanError(f"there is no step {number}")
    return number


def _unfinished_step(plan: Plan, request: PlanRequest) -> int:
    number = _known_step(plan, request)
    if plan.steps[number - 1].state is StepState.DONE:
        raise PlanError(f"step {number} is done and stays as it is")
    return number


def _one_line(text: str, limit_chars: int) -> str:
    # A bar separates titles in text mode and in the event of `set`, so no title holds one.
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1] + "…"
