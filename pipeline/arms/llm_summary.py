"""Summaries in place of the oldest turns (docs/methods.md, Masking and summaries).

Each summary is written from the previous one (or the task) and the turns that it covers. It stands
right after the task and replaces the previous one.
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
from pipeline.fields.bounds import Amount, Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import acted_turns, changed
from pipeline.views.trajectory import Edit, Edits, Part, Trajectory

REASON = "summary"


@dataclass(frozen=True, kw_only=True)
class LlmSummary(Parameters):
    """The oldest turns are summarized by the same model; the newest stay."""

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
    """Summarizes the oldest turns whenever enough are unsummarized."""

    def __init__(self, spec: LlmSummary, *, reads_raw: bool = False) -> None:
        """Take the parameters; `reads_raw` summarizes whole outputs where the view has edits."""
        self._spec = spec
        self._raw = reads_raw

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the new summary and what it replaces, when it is due."""
        end = summarized_before(standing, REASON)
        turns = [t for t in acted_turns(trajectory) if t.assistant.index >= end]
        if len(turns) < self._spec.summarise_turns + self._spec.keep_last_turns:
            return ()
        elided: Edits = {k: e for k, e in standing.items() if e.reason == "elide"}
        before = standing.get((FIRST_EDITABLE, Part.INSERTED))
        old, kept = turns[: self._spec.summarise_turns], turns[self._spec.summarise_turns :]
        request = notes_request(
            old,
            elided if self._raw else standing,
            task=trajectory.messages[1].content,
            notes=None if before is None else before.text,
            temperature=self._spec.temperature,
            max_tokens=self._spec.max_tokens,
        )
        summary = ask(request).content.strip()
        if not summary:
            return ()
        first = max(end, FIRST_EDITABLE)
        last = kept[0].assistant.index if kept else len(trajectory.messages)
        new = [
            summary_edit(summary, FIRST_EDITABLE, REASON),
            *replaced(trajectory, standing, first, last, REASON),
        ]
        return changed(new, standing)
