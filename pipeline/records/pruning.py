"""Which observations an arm took away, when, and what stood there instead: from the edits alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.records.run_record import RunRecord
from pipeline.views.shown import STANDING_REASONS
from pipeline.views.trajectory import Message, Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """How an observation left the view."""

    call_index: int
    reason: str
    replaced_by: str
    tokens: int


def prunings_of(record: RunRecord) -> dict[int, Pruning]:
    """Return, by message index, the observations whose text the arm replaced or dropped.

    Edits that all arms share (elision) are no pruning. `tokens` is what the message counted as it
    was shown just before; an elided text counts in proportion to its characters.
    """
    prunings: dict[int, Pruning] = {}
    elided: dict[int, str] = {}
    for index, call in enumerate(record.calls):
        for edit in call.edits:
            if edit.part not in (Part.CONTENT, Part.DROPPED):
                continue
            if not 0 <= edit.message_index < len(record.messages):
                continue
            message = record.messages[edit.message_index]
            if edit.reason in STANDING_REASONS:
                elided[message.index] = edit.text
            elif message.is_observation:
                first = prunings.get(message.index)
                prunings[message.index] = Pruning(
                    call_index=first.call_index if first else index,
                    reason=first.reason if first else edit.reason,
                    replaced_by="" if edit.part is Part.DROPPED else edit.text,
                    tokens=first.tokens if first else _tokens_shown(message, elided),
                )
    return prunings


def _tokens_shown(message: Message, elided: Mapping[int, str]) -> int:
    shown = elided.get(message.index)
    if shown is None or not message.content:
        return message.n_tokens
    return min(message.n_tokens, round(message.n_tokens * len(shown) / len(message.content)))
