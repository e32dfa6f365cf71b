"""What arms that replace turns by a summary have in common: question, text and edits.

When to summarize, and which turns, is each arm's rule. Turns that show the plan stay, since plan
results are the plan's only display; their other outputs become a placeholder.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.views.policy import AuxRequest, CallKind
from pipeline.views.shown import content_edit, is_removed, reasoning_edit
from pipeline.views.trajectory import (
    PLAN_TOOLS,
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    Turn,
    shown_content,
)

FIRST_EDITABLE = 2
"""Messages 0 and 1 are system and task."""
KEPT_WITH_PLAN = "[Output summarised above.]"

INSTRUCTION = """\
You keep the working notes of a coding agent whose older steps will no longer be visible to it. From
the notes so far (or the task, if there are none) and the steps below, write notes that replace
both. Keep exact file paths, names, error messages and commands where the agent will need them
again; leave out what no longer matters. Use these sections, and leave a section empty rather than
guess:
USER CONTEXT: what was asked, and any constraints.
COMPLETED: what has been done, with its results.
PENDING: what remains.
CURRENT STATE: where the work stands now.
CODE STATE: relevant files, functions and data structures.
TESTS: tests run or written, and their outcomes.
CHANGES: edits made so far.
DEPENDENCIES: packages, versions, environment.
VERSION CONTROL: branch, commits, uncommitted work."""


def notes_request(
    turns: Sequence[Turn],
    shown: Edits,
    *,
    task: str,
    notes: str | None,
    temperature: float,
    max_tokens: int | None,
) -> AuxRequest:
    """Return the call that asks for notes on `turns`, a conversation of its own.

    Args:
        turns: what the notes take in.
        shown: the edits under which the turns are read.
        task: what the agent was asked; read where there are no notes yet.
        notes: the notes so far, which the new ones replace.
        temperature: of the answer.
        max_tokens: of the answer; None: the model's own limit.
    """
    start = f"Task:\n{task}" if notes is None else f"Notes so far:\n{notes}"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": "\n\n".join([start, *(_turn_text(t, shown) for t in turns)])},
    ]
    return AuxRequest(
        kind=CallKind.SUMMARY, messages=messages, temperature=temperature, max_tokens=max_tokens
    )


def summary_edit(summary: str, at: int, reason: str) -> Edit:
    """Return the edit that shows a summary before the message of index `at`."""
    text = f"Your earlier steps are no longer shown. Notes about them:\n{summary}"
    return Edit(message_index=at, part=Part.INSERTED, text=text, reason=reason)


def summarized_before(edits: Edits, reason: str) -> int:
    """Return the index of the first message that no summary with this reason has taken in."""
    return max(
        (i + 1 for (i, part), e in edits.items() if e.reason == reason and part != Part.INSERTED),
        default=0,
    )


def replaced(
    trajectory: Trajectory, edits: Edits, first: int, last: int, reason: str
) -> list[Edit]:
    """Return the edits that take messages `first` to `last` - 1 out of the view."""
    with_plan = {
        message.index
        for turn in trajectory.turns
        if any(result.tool in PLAN_TOOLS for result in turn.observations)
        for message in (turn.assistant, *turn.observations)
    }
    found: list[Edit] = []
    for message in trajectory.messages[first:last]:
        if message.index in with_plan:
            found += _shortened(message, edits, reason)
        elif (message.index, Part.DROPPED) not in edits:
            found.append(
                Edit(message_index=message.index, part=Part.DROPPED, text="", reason=reason)
            )
    return found


def _shortened(message: Message, edits: Edits, reason: str) -> list[Edit]:
    """Return the edits of a message in a turn that shows the plan.

    The assistant's text is written over by itself, which marks the turn as taken in.
    """
    if message.role == "assistant":
        marks = [content_edit(message, shown_content(message, edits), reason)]
        return marks + ([reasoning_edit(message, reason)] if message.reasoning else [])
    if message.is_prunable and not is_removed(message, edits):
        return [content_edit(message, KEPT_WITH_PLAN, reason)]
    return []


def _turn_text(turn: Turn, edits: Edits) -> str:
    lines = [f"Step {turn.step_index}: {shown_content(turn.assistant, edits)}".rstrip()]
    for result in turn.observations:
        lines.append(f"$ {result.command or result.tool}\n{shown_content(result, edits)}")
    return "\n".join(lines)
