"""Replies that could not be carried out, told from their record: how many, and why it may be ours.

A reply whose tool call came as text is often no fault of the model: the server's parser did not
read it, and the arm whose prompts bring that about loses by it. So such replies are counted apart.
"""

import re
from collections.abc import Iterable

from pipeline.records.run_record import CallRecord

FORMAT = "format: "
"""How the `error` of a call begins whose reply could not be carried out."""

_CALL_AS_TEXT = re.compile(
    r"<tool_call>|<\|?tool_calls?(?:_begin)?\|?>|<function[=_]|\[TOOL_CALLS\]|<\|python_tag\|>"
    r"|<invoke |<\|channel\|>commentary to=|\"arguments\"\s*:\s*[{\"]|\"parameters\"\s*:\s*\{"
)
"""How the formats of today's models begin a call, or write its arguments."""


def n_format_errors(calls: Iterable[CallRecord]) -> int:
    """Return how many replies could not be carried out."""
    return sum(_is_refused(call) for call in calls)


def n_calls_as_text(calls: Iterable[CallRecord]) -> int:
    """Return how many of them have a tool call in their text or reasoning, and none as a call."""
    return sum(
        _is_refused(call)
        and not call.reply_tool_calls
        and bool(_CALL_AS_TEXT.search(f"{call.reply or ''}\n{call.reply_reasoning or ''}"))
        for call in calls
    )


def _is_refused(call: CallRecord) -> bool:
    return (call.error or "").startswith(FORMAT)
