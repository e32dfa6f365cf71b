"""Condensation: once the view holds many events, a summary replaces its middle, OpenHands' rule.

See docs/methods.md, What people run.

A message of the view is an event, the summary too. The first events and the newest half stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.arms.summary_turn import (
    FIRST_EDITABLE,
    notes_request,
    replaced,
    summarized_before,
    summary_edit,
)
from pipeline.fields.bounds import Amount, Count, Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import acted_turns, changed
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory

REASON = "condense"


@dataclass(frozen=True, kw_only=True)
class OpenhandsCondense(Parameters):
    """Past a number of events, a summary replaces all but the first and the newest half."""

    source: ClassVar[str] = "OpenHands' LLMSummarizingCondenser, as in its source"
    tuned: ClassVar[str | None] = "max_events"
    example: ClassVar[Mapping[str, Any]] = {"max_events": 11}

    kind: Science[Literal["openhands_condense"]] = "openhands_condense"
    max_events: Science[Count] = 240
    """A longer view is condensed to half of this."""
    keep_first_events: Science[Natural] = 2
    """The system message and the task stay in any case."""
    min_progress_share: Science[Share] = 0.1
    """Of the view's events: nothing is done where fewer would go."""
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return OpenhandsCondensePolicy(self)


class OpenhandsCondensePolicy:
    """Summarizes the middle of a view that holds too many events."""

    def __init__(self, spec: OpenhandsCondense) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the new summary and what it replaces, once there are too many events."""
        events = [m for m in trajectory.messages if (m.index, Part.DROPPED) not in standing]
        first = self._first(trajectory)
        before = standing.get((first, Part.INSERTED))
        n_events = len(events) + (before is not None)
        if n_events <= self._spec.max_events:
            return ()
        last = self._first_kept(events, trajectory)
        gone = replaced(trajectory, standing, first, last, REASON)
        n_gone = sum(edit.part is Part.DROPPED for edit in gone)
        if not n_gone or n_gone < self._spec.min_progress_share * n_events:
            return ()
        done = max(first, summarized_before(standing, REASON))
        request = notes_request(
            [t for t in acted_turns(trajectory) if done <= t.assistant.index < last],
            standing,
            task=trajectory.messages[1].content,
            notes=None if before is None else before.text,
            temperature=self._spec.temperature,
            max_tokens=self._spec.max_tokens,
        )
        summary = ask(request).content.strip()
        return changed([summary_edit(summary, first, REASON), *gone], standing) if summary else ()

    def _first(self, trajectory: Trajectory) -> int:
        """Return the first message that may go: a turn that has begun stays whole."""
        first = max(FIRST_EDITABLE, self._spec.keep_first_events)
        messages = trajectory.messages
        while first < len(messages) and messages[first].is_observation:
            first += 1
        return first

    def _first_kept(self, events: Sequence[Message], trajectory: Trajectory) -> int:
        """Return the first message of the newest half: a turn begins with it."""
        n_tail = max(0, self._spec.max_events // 2 - self._spec.keep_first_events - 1)
        tail = events[max(0, len(events) - n_tail) :]
        starts = [m.index for m in tail if m.role == "assistant"]
        # The newest turn stays, however many results it has.
        newest = trajectory.turns[-1].assistant.index if trajectory.turns else len(events)
        return min(starts, default=newest)
