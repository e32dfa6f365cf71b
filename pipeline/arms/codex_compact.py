"""Compaction: near the end of the window one summary replaces the whole history, Codex's rule.

See docs/methods.md, What people run.

What stays is the system message and the task, the newest user messages up to a number of tokens,
and the summary behind them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.arms.summary_turn import FIRST_EDITABLE, replaced, summarized_before, summary_edit
from pipeline.fields.bounds import Count, Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, AuxRequest, CallKind, Policy
from pipeline.views.shown import ShownTokens, changed
from pipeline.views.trajectory import Edit, Edits, Part, Trajectory, view_messages

REASON = "compact"
INSTRUCTION = """\
The history above is about to be taken away. Write a summary from which another engineer could go on
without it: what was asked and any constraints, what has been done and found, what was decided and
why, the files, commands and error messages that are needed again, and what remains to be done."""


@dataclass(frozen=True, kw_only=True)
class CodexCompact(Parameters):
    """Once the window is nearly full, one summary replaces all but the task and user messages."""

    source: ClassVar[str] = "Codex's compaction, as in its source"
    tuned: ClassVar[str | None] = "trigger_share"
    example: ClassVar[Mapping[str, Any]] = {"trigger_share": 0.06}

    kind: Science[Literal["codex_compact"]] = "codex_compact"
    trigger_share: Science[Share] = 0.9
    """Of the window: from here on the history is compacted."""
    keep_user_tokens: Science[Natural] = 20_000
    """The newest user messages stay up to this size, whole ones only."""
    max_tokens: Science[Count | None] = None
    """Limit of the summary; None: the model's own."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return CodexCompactPolicy(self, context)


class CodexCompactPolicy:
    """Has the history summarized once it nearly fills the window."""

    def __init__(self, spec: CodexCompact, context: PolicyContext) -> None:
        self._spec = spec
        self._limit = spec.trigger_share * context.context_length
        self._tokens = ShownTokens(context.counter)

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the new history: its summary, and what that replaces."""
        end, here = summarized_before(standing, REASON), len(trajectory.messages)
        is_new = any(turn.assistant.index >= end for turn in trajectory.turns)
        if not is_new or self._tokens.of_view(trajectory, standing) <= self._limit:
            return ()
        summary = ask(self._request(trajectory, standing)).content.strip()
        if not summary:
            return ()
        kept = self._kept_user_messages(trajectory)
        old_summaries = [
            Edit(message_index=index, part=part, text="", reason=REASON)
            for index, part in standing
            if part is Part.INSERTED
        ]
        gone = [
            edit
            for edit in replaced(trajectory, standing, FIRST_EDITABLE, here, REASON)
            if edit.message_index not in kept
        ]
        return changed([*old_summaries, *gone, summary_edit(summary, here, REASON)], standing)

    def _request(self, trajectory: Trajectory, standing: Edits) -> AuxRequest:
        messages = [
            *view_messages(trajectory, standing),
            {"role": "user", "content": INSTRUCTION},
        ]
        return AuxRequest(
            kind=CallKind.SUMMARY, messages=messages, max_tokens=self._spec.max_tokens
        )

    def _kept_user_messages(self, trajectory: Trajectory) -> set[int]:
        """Return the indexes of the newest user messages that fit."""
        kept: set[int] = set()
        left = self._spec.keep_user_tokens
        for message in reversed(trajectory.messages[FIRST_EDITABLE:]):
            if message.role != "user" or message.tool is not None:
                continue
            left -= message.n_tokens
            if left < 0:
                break
            kept.add(message.index)
        return kept
