"""SWE-Pruner Pro: only lines that a head in the model server finds useful stay.

See docs/methods.md, SWE-Pruner Pro.

The model's next call sees the whole output and scores it on the way, and from the call after only
the kept lines are shown. An output without usable scores passes unpruned; so does one that is
short. Line pruners beside the model server are in `line_pruning`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.kept_lines import kept_lines
from pipeline.views.line_edits import REASON, line_edit
from pipeline.views.line_scores import LineScores, decoded, n_without_scores, request_params
from pipeline.views.policy import Ask, Policy, ServerQuestion
from pipeline.views.shown import is_removed
from pipeline.views.trajectory import (
    Decision,
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    shown_content,
)

SCORES = "line_scores"
"""Kind of the decision that keeps what the server said of a call's new outputs."""


@dataclass(frozen=True, kw_only=True)
class SwePrunerPro(Parameters):
    """Lines that a head in the server finds useless go, one call after they were first shown."""

    source: ClassVar[str] = "arXiv 2607.18213"
    example: ClassVar[Mapping[str, Any]] = {"min_chars": 100}
    needs_head: ClassVar[bool] = True

    kind: Science[Literal["swe_pruner_pro"]] = "swe_pruner_pro"
    head: Science[str] = "unnamed"
    """Which head the server carries, by name or digest: another head is another treatment."""
    threshold: Science[Share] = 0.5
    """A token is kept from this score on, a line with more than half of its tokens."""
    fill_gaps: Science[bool] = True
    """Keep a single line between two kept ones."""
    min_chars: Science[Natural] = 2000
    """Shorter outputs are left alone."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return SwePrunerProPolicy(self, context)


class SwePrunerProPolicy:
    """Shows the lines that the head in the server kept, one call after they were first shown."""

    def __init__(self, spec: SwePrunerPro, context: PolicyContext) -> None:
        self._spec, self._marker = spec, context.placeholder

    def server_question(self, trajectory: Trajectory, standing: Edits) -> ServerQuestion | None:
        """Return the question about the outputs that the next call is the first to show."""
        turn = trajectory.turns[-1] if trajectory.turns else None
        asked = {i for d in _score_decisions(trajectory) for i in _indices(d)}
        messages = [
            message
            for message in (turn.observations if turn is not None else ())
            if message.is_prunable
            and message.index not in asked
            and not is_removed(message, standing)
            and len(shown_content(message, standing)) >= self._spec.min_chars
        ]
        if not messages:
            return None
        return ServerQuestion(
            kind=SCORES,
            messages=[m.index for m in messages],
            params=request_params([shown_content(m, standing) for m in messages]),
        )

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits that show what the last call's scores keep."""
        newest = max(_score_decisions(trajectory), key=lambda d: d.message_index, default=None)
        return [] if newest is None else list(self._edits(newest, trajectory, standing))

    def _edits(self, decision: Decision, trajectory: Trajectory, standing: Edits) -> Iterator[Edit]:
        messages = [trajectory.messages[i] for i in _indices(decision)]
        open_ones = [m for m in messages if not _is_decided(m, standing)]
        if not open_ones:
            return
        texts = [shown_content(m, standing) for m in messages]
        answers = decoded(json.loads(decision.content)["answer"], texts)
        for message, text, answer in zip(messages, texts, answers, strict=True):
            if message not in open_ones or not isinstance(answer, LineScores):
                continue
            kept = kept_lines(
                answer.scores,
                answer.lines,
                threshold=self._spec.threshold,
                fill_gaps=self._spec.fill_gaps,
            )
            yield from line_edit(message, text, kept, marker=self._marker)


def score_failures(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Return how many outputs a server was asked to score, and how many it did not."""
    kept = [json.loads(d.content) for d in decisions if d.kind == SCORES and d.content]
    asked = [len(entry["messages"]) for entry in kept]
    failed = [n_without_scores(e["answer"], n) for e, n in zip(kept, asked, strict=True)]
    return sum(asked), sum(failed)


def _score_decisions(trajectory: Trajectory) -> Iterator[Decision]:
    """Yield the scores known so far; the trajectory of a finished run holds later ones too."""
    now = len(trajectory.messages)
    return (d for d in trajectory.decisions if d.kind == SCORES and d.message_index < now)


def _indices(decision: Decision) -> list[int]:
    return list(json.loads(decision.content)["messages"])


def _is_decided(message: Message, standing: Edits) -> bool:
    edit = standing.get((message.index, Part.CONTENT))
    return edit is not None and edit.reason == REASON
