"""SWE-Pruner Pro's arm (METHODS 2 and 3), and how an output is shown of which some lines stay.

The model's next call sees the whole output and scores it on the way, and from the call after only
the kept lines are shown. An output without usable scores passes unpruned; so does one that is
short. Line pruners that stand beside the model server are `line_pruners`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from pipeline.context.kept_lines import FILTERED, BoolArray, kept_lines, kept_text
from pipeline.context.line_scores import LineScores, decoded, n_without_scores, request_params
from pipeline.context.shown import content_edit, is_removed
from pipeline.protocols import Ask, ServerQuestion
from pipeline.records.trajectory import (
    Decision,
    Edit,
    Edits,
    Message,
    Part,
    Trajectory,
    shown_content,
)
from pipeline.spec.policy import SwePrunerPro

REASON = "line_prune"

SCORES = "line_scores"
"""Kind of the decision that keeps what the server said of a call's new outputs."""


def pruned_text(text: str, kept: BoolArray | None, *, marker: str | None) -> str:
    """Return what is shown of an output of which `kept` lines stay."""
    return text if kept is None else kept_text(text, kept, marker=marker or FILTERED)


def line_edit(
    message: Message,
    text: str,
    kept: BoolArray | None,
    *,
    marker: str | None,
    frame: tuple[str, str] = ("", ""),
) -> Iterator[Edit]:
    """Yield the edit that shows the kept lines of an output, where that is shorter at all.

    Args:
        message: The output's.
        text: What was judged.
        kept: Which of its lines stay.
        marker: Stands for removed lines.
        frame: What stands before and after `text` in the message.
    """
    shown = pruned_text(text, kept, marker=marker)
    # A marker longer than what it replaces saves nothing.
    if len(shown) < len(text):
        yield content_edit(message, shown.join(frame), REASON)


class SwePrunerProPolicy:
    """Shows the lines that the head in the server kept, one call after they were first shown."""

    def __init__(self, spec: SwePrunerPro, *, placeholder: str | None) -> None:
        self._spec, self._marker = spec, placeholder

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
    """Return about how many outputs a server was asked for scores, and how many came without."""
    kept = [json.loads(d.content) for d in decisions if d.kind == SCORES and d.content]
    asked = [len(entry["messages"]) for entry in kept]
    failed = [n_without_scores(e["answer"], n) for e, n in zip(kept, asked, strict=True)]
    return sum(asked), sum(failed)


def _score_decisions(trajectory: Trajectory) -> Iterator[Decision]:
    """Yield the scores known by now; a finished run replayed holds later ones too."""
    now = len(trajectory.messages)
    return (d for d in trajectory.decisions if d.kind == SCORES and d.message_index < now)


def _indices(decision: Decision) -> list[int]:
    return list(json.loads(decision.content)["messages"])


def _is_decided(message: Message, standing: Edits) -> bool:
    edit = standing.get((message.index, Part.CONTENT))
    return edit is not None and edit.reason == REASON
