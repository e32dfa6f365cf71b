"""Arms with a line pruner of their own: what it is asked, and what its answer shows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.arms.line_pruning import LinePrunerPolicy, framed, with_cheap_gaps
from pipeline.arms.llmlingua2 import LlmLingua2
from pipeline.arms.rag import Rag
from pipeline.arms.swe_pruner import SwePruner
from pipeline.views.focus import FOCUS_ARGUMENT, focus_question
from pipeline.views.kept_lines import FILTERED, kept_text, split_lines
from pipeline.views.policy import AuxReply, AuxRequest, CallKind
from pipeline.views.trajectory import Decision, Edit, Message, ToolCall, Turn
from pipeline.views.walk import PlainView, Walk
from tests.context.driving import context
from tests.context.test_line_prune import Run

LONG = "".join(f"line number {i} of a long output\n" for i in range(9))
RAG = Rag(model="m", min_chars=50)


class Pruner:
    """Says the same about every output, and keeps what it was asked."""

    def __init__(self, **said: object) -> None:
        self.said, self.requests = said, list[AuxRequest]()

    def __call__(self, request: AuxRequest) -> AuxReply:
        self.requests.append(request)
        outputs = [{"message": o.message_index, **self.said} for o in request.outputs]
        answer = {"pruner": request.pruner, "outputs": outputs}
        return AuxReply(kind=request.kind, content=json.dumps(answer))


def edits_of(
    said: Mapping[str, Any], *outputs: str, spec: Any = RAG, frame: tuple[str, str] = ("", "")
) -> tuple[list[Edit], Pruner]:
    run, pruner = Run(), Pruner(**said)
    run.turn(*outputs, frame=frame)
    policy = LinePrunerPolicy(spec, context())
    return list(policy.decide(run.trajectory, run.standing, pruner)), pruner


def test_the_kept_lines_are_shown_and_the_others_counted() -> None:
    (edit,), pruner = edits_of({"kept": [[2, 2], [5, 6]]}, LONG)
    lines = LONG.splitlines()
    assert edit.text.splitlines() == [
        *("(filtered 1 lines)", lines[1], "(filtered 2 lines)", lines[4], lines[5]),
        "(filtered 3 lines)",
    ]
    (request,) = pruner.requests
    assert request.kind is CallKind.LINES
    assert (request.messages, request.edits) == (None, ())
    (output,) = request.outputs
    assert output.text == LONG
    assert [m.index for m in output.history] == list(range(output.message_index))


def test_all_outputs_of_a_turn_are_judged_at_once_and_each_gets_its_own_answer() -> None:
    edits, pruner = edits_of({"kept": [[1, 1]]}, LONG, "tiny", LONG)
    assert len(pruner.requests) == 1
    assert [e.message_index for e in edits] == [o.message_index for o in pruner.requests[0].outputs]
    assert len(edits) == 2


@pytest.mark.parametrize("said", [{"error": "gone"}, {"kept": None}, {"kept": [[1, 9]]}])
def test_without_a_decision_the_output_stays_whole(said: dict[str, Any]) -> None:
    assert edits_of(said, LONG)[0] == []


@pytest.mark.parametrize("output", ["", "short\n", "x" * 49])
def test_short_and_empty_outputs_are_not_asked_about(output: str) -> None:
    edits, pruner = edits_of({"kept": []}, output)
    assert (edits, pruner.requests) == ([], [])


def test_an_output_is_judged_when_it_comes_and_never_again() -> None:
    run, pruner = Run(), Pruner(kept=[[1, 1]])
    policy = LinePrunerPolicy(RAG, context())
    run.turn(LONG)
    assert policy.decide(run.trajectory, run.standing, pruner)
    run.add("user", "no tool call found", step=2)
    assert not policy.decide(run.trajectory, run.standing, pruner)
    assert len(pruner.requests) == 1


def test_the_smallest_size_is_500_characters() -> None:
    assert (
        LlmLingua2(model="m").min_chars == SwePruner().min_chars == Rag(model="m").min_chars == 500
    )


def test_the_return_code_is_no_line_of_the_output_and_always_stays() -> None:
    before, after = "$ exit code 1\n", "[end of output]"
    (edit,), pruner = edits_of({"kept": [[1, 1]]}, LONG, frame=(before, after))
    assert pruner.requests[0].outputs[0].text == LONG
    assert edit.text == f"{before}{LONG.splitlines()[0]}\n(filtered 8 lines)\n{after}"


def test_the_middle_of_an_elided_output_is_judged_within_its_frame() -> None:
    frame = ("<output>\n", "</output>")
    shown = f"<output>\nhead{LONG}tail\n</output>"
    message = Message(
        index=0, step_index=1, role="tool", content="x".join(frame), output="x", output_start=9
    )
    assert framed(message, shown) == (frame[0], f"head{LONG}tail\n", frame[1])
    assert framed(message, "[omitted]") == ("", "[omitted]", "")


def test_the_smallest_size_counts_without_the_frame() -> None:
    frame = ("<returncode>1</returncode>\n<output>\n", "</output>")
    edits, pruner = edits_of({"kept": []}, "x\n" * 24, frame=frame)
    assert (edits, pruner.requests) == ([], [])


def test_the_recorded_answer_of_another_pruner_is_none() -> None:
    """Replayed over a run of another arm, or with other parameters, nobody knows what it keeps."""
    run, pruner = Run(), Pruner(kept=[[1, 1]])
    run.turn(LONG)
    LinePrunerPolicy(RAG, context()).decide(run.trajectory, {}, pruner)
    (request,) = pruner.requests
    content = pruner(request).content
    here = len(run.trajectory.messages)
    run.trajectory.decisions.append(
        Decision(kind="lines", message_index=here, call_index=0, content=content)
    )
    for spec, n_edits in [
        (RAG, 1),
        (replace(RAG, device="cuda", path="/elsewhere"), 1),
        (replace(RAG, keep_windows=2), 0),
        (LlmLingua2(model="m", min_chars=50), 0),
    ]:
        policy = LinePrunerPolicy(spec, context())
        walk = Walk(policy, PlainView(trajectory=run.trajectory), no_ask)
        assert len(walk.step()) == n_edits


def no_ask(_: AuxRequest) -> AuxReply:
    raise AssertionError("the decision is recorded")


# --- the query -----------------------------------------------------------------------------------
def asked(assistant: Mapping[str, Any], *, spec: Any = RAG) -> list[str | None]:
    """The queries put for one output after an assistant message."""
    run, pruner = Run(), Pruner(kept=[[1, 1]])
    message = Message(index=2, step_index=1, role="assistant", **assistant)
    result = Message(
        index=3, step_index=1, role="tool", content=LONG, tool="bash", tool_call_id="c",
        command="cat f",
    )  # fmt: skip
    run.trajectory.append([message, result])
    LinePrunerPolicy(spec, context()).decide(run.trajectory, {}, pruner)
    return [output.query for request in pruner.requests for output in request.outputs]


def call(**arguments: object) -> dict[str, Any]:
    made = ToolCall(id="c", name="bash", arguments=json.dumps(arguments))
    return {"content": "", "tool_calls": (made,)}


def test_the_query_is_what_the_agent_said_and_ran_and_else_the_task() -> None:
    said = {"content": "Read it.", "reasoning": "Where is it?"}
    assert asked(said) == ["Where is it?\nRead it.\ncat f"]
    assert asked({"content": ""}) == ["u\ncat f"]
    assert asked(said, spec=Rag(model="m", min_chars=50, query_chars=8)) == ["t.\ncat f"]


def test_swe_pruner_asks_the_agents_own_question_or_nothing() -> None:
    spec = SwePruner(min_chars=50)
    question = call(command="cat f", **{FOCUS_ARGUMENT: "  Who calls it?  "})
    assert asked(question, spec=spec) == ["Who calls it?"]
    assert asked(call(command="cat f"), spec=spec) == []
    assert asked(call(command="cat f", **{FOCUS_ARGUMENT: " "}), spec=spec) == []
    assert asked(call(command="cat f", **{FOCUS_ARGUMENT: 3}), spec=spec) == []


@pytest.mark.parametrize("arguments", ["{", "[]", "null", ""])
def test_arguments_that_are_no_object_hold_no_question(arguments: str) -> None:
    assistant = Message(
        index=2, step_index=1, role="assistant", content="",
        tool_calls=(ToolCall(id="c", name="bash", arguments=arguments),),
    )  # fmt: skip
    result = Message(index=3, step_index=1, role="tool", content="", tool_call_id="c", tool="bash")
    turn = Turn(step_index=1, assistant=assistant, observations=(result,))
    assert focus_question(turn, result) is None


# --- what is shown -------------------------------------------------------------------------------
def test_a_gap_no_longer_than_its_marker_is_shown() -> None:
    text = "keep\n\n}\nkeep\n" + "a line that is longer than any marker\n" + "keep\n"
    kept = with_cheap_gaps(np.array([True, False, False, True, False, True]), text, FILTERED)
    assert list(kept) == [True, True, True, True, False, True]


@given(
    st.lists(st.text("ab !é数\r", max_size=30), min_size=1, max_size=12).map("\n".join),
    st.data(),
)
def test_no_pruned_text_is_longer_and_the_kept_lines_come_back_byte_for_byte(
    text: str, data: st.DataObject
) -> None:
    lines = split_lines(text)
    kept = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines))), dtype=bool
    )
    filled = with_cheap_gaps(kept, text, FILTERED)
    shown = kept_text(text, filled)
    assert len(shown) <= len(text)
    at = 0
    for line in (line for line, stays in zip(lines, filled, strict=True) if stays):
        at = shown.index(line, at) + len(line)
