"""Summaries in place of the oldest turns (docs/methods.md, Masking and summaries).

Each summary is written from the one before it, or the task, and the turns it takes in, and replaces
it, standing right after the task. Turns that show the plan stay, since plan results are the plan's
only display; their other outputs become a placeholder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, AuxRequest, CallKind, Policy
from pipeline.views.shown import acted_turns, changed, content_edit, is_removed, reasoning_edit
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

REASON = "summary"
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


@dataclass(frozen=True, kw_only=True)
class LlmSummary(Parameters):
    """The oldest turns are summarised by the same model; the newest stay."""

    source: ClassVar[str] = "arXiv 2508.21433, after OpenHands"
    tuned: ClassVar[str | None] = "summarise_turns"
    example: ClassVar[Mapping[str, Any]] = {"summarise_turns": 3, "keep_last_turns": 2}

    kind: Science[Literal["llm_summary"]] = "llm_summary"
    summarise_turns: Science[Count] = 21
    keep_last_turns: Science[Natural] = 10
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return LlmSummaryPolicy(self)


class LlmSummaryPolicy:
    """Summarises the oldest turns whenever enough stand unsummarised."""

    def __init__(self, spec: LlmSummary, *, reads_raw: bool = False) -> None:
        """Take the parameters; `reads_raw` summarises whole outputs where the view has edits."""
        self._spec = spec
        self._raw = reads_raw

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the new summary and what it replaces, when it is time."""
        end = _summarised_before(standing)
        turns = [t for t in acted_turns(trajectory) if t.assistant.index >= end]
        if len(turns) < self._spec.summarise_turns + self._spec.keep_last_turns:
            return ()
        batch = turns[: self._spec.summarise_turns]
        request = self._request(trajectory, standing, batch)
        summary = ask(request).content.strip()
        if not summary:
            return ()
        first = max(end, FIRST_EDITABLE)
        last = turns[len(batch)].assistant.index
        new = [_summary_edit(summary), *_replaced(trajectory, standing, first, last)]
        return changed(new, standing)

    def _request(self, trajectory: Trajectory, edits: Edits, batch: Sequence[Turn]) -> AuxRequest:
        before = edits.get((FIRST_EDITABLE, Part.INSERTED))
        start = trajectory.messages[1].content if before is None else before.text
        read: Edits = (
            {k: e for k, e in edits.items() if e.reason == "elide"} if self._raw else edits
        )
        parts = [f"{'Task' if before is None else 'Notes so far'}:\n{start}"]
        parts += [_turn_text(turn, read) for turn in batch]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": "\n\n".join(parts)},
        ]
        return AuxRequest(
            kind=CallKind.SUMMARY,
            messages=messages,
            temperature=self._spec.temperature,
            max_tokens=self._spec.max_tokens,
        )


def _summarised_before(edits: Edits) -> int:
    """Return the index of the first message that no summary has taken in."""
    return max(
        (i + 1 for (i, part), e in edits.items() if e.reason == REASON and part != Part.INSERTED),
        default=0,
    )


def _summary_edit(summary: str) -> Edit:
    text = f"Your earlier steps are no longer shown. Notes about them:\n{summary}"
    return Edit(message_index=FIRST_EDITABLE, part=Part.INSERTED, text=text, reason=REASON)


def _turn_text(turn: Turn, edits: Edits) -> str:
    lines = [f"Step {turn.step_index}: {shown_content(turn.assistant, edits)}".rstrip()]
    for result in turn.observations:
        lines.append(f"$ {result.command or result.tool}\n{shown_content(result, edits)}")
    return "\n".join(lines)


def _replaced(trajectory: Trajectory, edits: Edits, first: int, last: int) -> list[Edit]:
    """Return the edits that take messages `first` to `last` - 1 out of the view."""
    with_plan = {
        message.index: turn
        for turn in trajectory.turns
        if any(result.tool in PLAN_TOOLS for result in turn.observations)
        for message in (turn.assistant, *turn.observations)
    }
    replaced: list[Edit] = []
    for message in trajectory.messages[first:last]:
        if message.index in with_plan:
            replaced += _shortened(message, edits)
        elif (message.index, Part.DROPPED) not in edits:
            replaced.append(
                Edit(message_index=message.index, part=Part.DROPPED, text="", reason=REASON)
            )
    return replaced


def _shortened(message: Message, edits: Edits) -> list[Edit]:
    """Return the edits of a message in a turn that shows the plan.

    The assistant's text is written over by itself, which marks the turn as taken in.
    """
    if message.role == "assistant":
        marks = [content_edit(message, shown_content(message, edits), REASON)]
        return marks + ([reasoning_edit(message, REASON)] if message.reasoning else [])
    if message.is_prunable and not is_removed(message, edits):
        return [content_edit(message, KEPT_WITH_PLAN, REASON)]
    return []
