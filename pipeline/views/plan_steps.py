"""The plan as it stood at any moment, read from the plan events of the trajectory.

The plan tool and its rules belong to the agent; a policy only asks which step an output belonged to
and which steps have been completed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.views.trajectory import Message, PlanEvent, Trajectory, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSpan:
    """The messages during which a plan step was active."""

    plan_step: int
    first: int
    """Index of the plan result that started it."""
    last: int | None
    """Index of the plan result that ended it; None while it is active."""


def step_spans(trajectory: Trajectory) -> list[StepSpan]:
    """Return the spans of the plan's steps in order of their start."""
    spans: list[StepSpan] = []
    active: PlanEvent | None = None
    for event in trajectory.plan_events:
        ends = event.action == "set" or (
            active is not None
            and event.plan_step == active.plan_step
            and event.action in ("complete", "drop")
        )
        if active is not None and (ends or event.action == "start"):
            spans.append(_span(active, event.message_index))
            active = None
        if event.action == "start":
            active = event
    if active is not None:
        spans.append(_span(active, None))
    return spans


def _span(start: PlanEvent, last: int | None) -> StepSpan:
    return StepSpan(plan_step=start.plan_step, first=start.message_index, last=last)


def step_of(message: Message, spans: Sequence[StepSpan]) -> int | None:
    """Return the plan step that was active when `message` arrived, None between steps."""
    for span in reversed(spans):
        if span.first <= message.index:
            inside = span.last is None or message.index < span.last
            return span.plan_step if inside else None
    return None


def completed_in(turn: Turn, trajectory: Trajectory) -> list[int]:
    """Return the plan steps that were completed by actions of `turn`."""
    results = {m.index for m in turn.observations}
    return [
        event.plan_step
        for event in trajectory.plan_events
        if event.action == "complete" and event.message_index in results
    ]


def steps_left(trajectory: Trajectory) -> int | None:
    """Return how many steps are not completed yet; None while there is no plan.

    Setting a plan is one event for the whole (step 0) and one for each of its steps.
    """
    left: set[int] | None = None
    for event in trajectory.plan_events:
        if left is None or (event.action == "set" and event.plan_step == 0):
            left = set()
        if event.action in ("complete", "drop"):
            left.discard(event.plan_step)
        elif event.plan_step > 0:
            left.add(event.plan_step)
    return None if left is None else len(left)
