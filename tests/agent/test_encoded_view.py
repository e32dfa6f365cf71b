"""The bytes that are sent are those of the view, whatever is edited."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent.encoded_view import EncodedView
from pipeline.views.trajectory import (
    Edit,
    Message,
    Part,
    ToolCall,
    merged,
    tool_calls_as_sent,
    view_messages,
)
from tests.fakes import WordCounter

CALL = ToolCall(id="c", name="bash", arguments='{"command": "ls"}')
COUNTER = WordCounter()


def messages(n: int) -> list[Message]:
    made = []
    for index in range(n):
        assistant = index % 2 == 0
        text = f"text of message {index} ñ"
        made.append(
            Message(
                index=index,
                step_index=index // 2,
                role="assistant" if assistant else "tool",
                content=text,
                reasoning="some thought" if assistant else None,
                tool_calls=(CALL,) if assistant else (),
                tool_call_id=None if assistant else "c",
                tool=None if assistant else "bash",
                n_tokens=COUNTER.count(text) + (3 if assistant else 0),
                reasoning_tokens=2 if assistant else 0,
            )
        )
    return made


def edit(index: int, part: Part, words: str) -> Edit:
    text = words
    if part is Part.TOOL_CALLS:
        text = json.dumps(tool_calls_as_sent([CALL]))
    return Edit(message_index=index, part=part, text=text, reason="test")


N = 6
EDITS = st.lists(
    st.builds(edit, st.integers(0, N - 1), st.sampled_from(Part), st.text("ab ", max_size=9)),
    max_size=8,
)


@given(EDITS, EDITS, EDITS)
def test_what_is_sent_is_the_view_rendered_afresh(first, second, transient):
    view = EncodedView(COUNTER)
    for message in messages(N):
        view.append(message)
    view.apply(first)
    view.apply(second)
    standing = merged(merged({}, first), second)
    assert view.standing == standing
    sent = [json.loads(m) for m in view.sent()]
    assert sent == view_messages(view.trajectory, standing)
    for_once = [json.loads(m) for m in view.sent(transient)]
    assert for_once == view_messages(view.trajectory, merged(standing, transient))
    assert [json.loads(m) for m in view.sent()] == sent


def test_an_insertion_at_the_end_stays_in_front_of_what_comes_next():
    view = EncodedView(COUNTER)
    first, second = messages(2)
    view.append(first)
    view.apply([edit(1, Part.INSERTED, "between")])
    view.append(second)
    assert [json.loads(m)["role"] for m in view.sent()] == ["assistant", "user", "tool"]


def test_an_insertion_with_an_empty_text_takes_the_one_before_back():
    view = EncodedView(COUNTER)
    for message in messages(2):
        view.append(message)
    before = view.sent(), view.shown_tokens
    view.apply([edit(1, Part.INSERTED, "between")])
    assert len(view.sent([edit(1, Part.INSERTED, "")])) == 2
    view.apply([edit(1, Part.INSERTED, "")])
    assert (view.sent(), view.shown_tokens) == before
    assert view_messages(view.trajectory, view.standing) == [json.loads(m) for m in before[0]]


def test_a_message_is_encoded_once():
    view = EncodedView(COUNTER)
    for message in messages(3):
        view.append(message)
    before = view.sent()
    view.apply([edit(1, Part.CONTENT, "gone")])
    after = view.sent()
    assert after[0] is before[0]
    assert after[2] is before[2]
    assert after[1] != before[1]


def test_the_shown_tokens_follow_the_edits():
    view = EncodedView(COUNTER)
    for message in messages(4):
        view.append(message)
    whole = view.shown_tokens
    view.apply([edit(1, Part.CONTENT, "gone")])
    assert view.shown_tokens == whole - 5 + 1
    view.apply([edit(1, Part.CONTENT, "gone for good"), edit(0, Part.REASONING, "")])
    assert view.shown_tokens == whole - 5 + 3 - 2
    assert view.tokens_with([edit(4, Part.INSERTED, "a b")]) == view.shown_tokens + 2


@pytest.mark.parametrize(
    ("index", "part"), [(4, Part.CONTENT), (5, Part.INSERTED), (-1, Part.CONTENT)]
)
def test_an_edit_of_a_message_that_does_not_exist_is_an_error(index, part):
    view = EncodedView(COUNTER)
    for message in messages(4):
        view.append(message)
    with pytest.raises(ValueError, match="the trajectory has 4"):
        view.apply([edit(index, part, "x")])
