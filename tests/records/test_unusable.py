"""Replies that could not be carried out are counted, those with a call in their text apart."""

import pytest

from pipeline.records.rows import run_row
from pipeline.records.run_record import CallRecord
from pipeline.records.unusable import n_calls_as_text, n_format_errors
from pipeline.views.trajectory import ToolCall
from tests.records.samples import run_record


def refused(reply: str, reasoning: str | None = None, *calls: ToolCall) -> CallRecord:
    return CallRecord(
        step_index=1,
        kind="step",
        message_count=2,
        prompt_tokens=9,
        error="format: The reply holds no tool call.",
        reply=reply,
        reply_reasoning=reasoning,
        reply_tool_calls=calls,
    )


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        "<tool_call><function=bash><parameter=command>ls</parameter></function></tool_call>",
        '[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}}]',
        '<|python_tag|>{"name": "bash", "parameters": {"command": "ls"}}',
        '<|channel|>commentary to=functions.bash<|message|>{"command": "ls"}',
    ],
)
def test_a_call_that_came_as_text_is_told_from_a_reply_without_one(text):
    assert n_calls_as_text([refused(text)]) == 1
    assert n_calls_as_text([refused("", text)]) == 1
    assert n_calls_as_text([refused("I am done, I think.")]) == 0


def test_a_call_that_was_read_and_cannot_be_used_is_a_format_error_only():
    call = ToolCall(id="c1", name="bash", arguments="{")
    calls = [refused('<tool_call>{"name": "bash"}', None, call)]
    assert (n_format_errors(calls), n_calls_as_text(calls)) == (1, 0)


def test_a_run_has_its_counts():
    fine = CallRecord(step_index=1, kind="step", message_count=2, prompt_tokens=9)
    row = run_row(run_record(calls=(fine, refused("no"), refused("<tool_call>"))))
    assert (row["n_format_errors"], row["n_calls_as_text"]) == (2, 1)
