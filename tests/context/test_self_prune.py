"""The model prunes its own outputs, line by line, as they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.arms.self_prune import SelfPrune, SelfPrunePolicy, answered_lines
from pipeline.views.policy import AuxReply, AuxRequest, CallKind
from pipeline.views.trajectory import Edit
from tests.context.driving import context
from tests.context.test_line_prune import LONG, Run


class Asked:
    """Answers every question with the same words, and keeps the questions."""

    def __init__(self, answer: str) -> None:
        self.answer, self.requests = answer, list[AuxRequest]()

    def __call__(self, request: AuxRequest) -> AuxReply:
        self.requests.append(request)
        return AuxReply(kind=request.kind, content=self.answer)


def pruned(answer: str, *outputs: str, **spec: object) -> tuple[list[Edit], Asked]:
    run, asked = Run(), Asked(answer)
    run.turn(*outputs)
    policy = SelfPrunePolicy(SelfPrune(**{"min_chars": 20, **spec}), context())  # type: ignore[arg-type]
    return list(policy.decide(run.trajectory, run.standing, asked)), asked


def test_what_the_answer_names_stays_and_the_rest_is_counted() -> None:
    (edit,), asked = pruned("1, 5-6", LONG)
    assert edit.text == "keep 0\n(filtered 3 lines)\nkeep 4\ndrop 5\n(filtered 3 lines)\n"
    (request,) = asked.requests
    assert (request.kind, request.temperature) == (CallKind.PRUNE, 0.0)
    assert request.messages is not None
    assert "5: keep 4\n6: drop 5\n" in request.messages[1]["content"]


def test_short_outputs_are_not_asked_about() -> None:
    edits, asked = pruned("1", "tiny", LONG)
    assert len(edits) == len(asked.requests) == 1


def test_gaps_of_one_line_are_filled_unless_told_otherwise() -> None:
    assert "drop 1" in pruned("1, 3", LONG)[0][0].text
    assert "drop 1" not in pruned("1, 3", LONG, fill_gaps=False)[0][0].text


def test_outputs_of_one_turn_are_numbered_through_and_asked_about_once() -> None:
    edits, asked = pruned("1-2, 14", LONG, LONG)
    assert len(asked.requests) == 1
    assert [e.message_index for e in edits] == [3, 4]
    assert edits[0].text == "keep 0\ndrop 1\n(filtered 7 lines)\n"
    assert edits[1].text == "(filtered 4 lines)\nkeep 4\n(filtered 4 lines)\n"


def test_an_output_is_asked_about_when_it_comes_and_never_again() -> None:
    run, asked = Run(), Asked("1")
    policy = SelfPrunePolicy(SelfPrune(min_chars=20), context())
    run.turn(LONG)
    assert policy.decide(run.trajectory, run.standing, asked)
    run.add("user", "no tool call found", step=2)
    assert not policy.decide(run.trajectory, run.standing, asked)
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    "answer", ["", "ALL", "all of it", "I keep the 8 rules", "0", "99-120", "1-9"]
)
def test_an_answer_that_names_nothing_or_everything_prunes_nothing(answer: str) -> None:
    assert pruned(answer, LONG)[0] == []


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("1-2, 4", [1, 2, 4]),
        ("<think>maybe 3</think>\n2 to 3", [2, 3]),
        ("Lines: 2\N{EN DASH}3.", [2, 3]),
        ("The agent needs 5 of them:\n4-9", [4, 5]),
        ("```\n1\n3\n```", [1, 3]),
        ("NONE", []),
    ],
)
def test_answers_are_read_as_models_write_them(answer: str, kept: list[int]) -> None:
    found = answered_lines(answer, 5)
    assert found is not None
    assert [i + 1 for i in found.nonzero()[0].tolist()] == kept


@given(st.text("0123456789-,to \nlines", max_size=40), st.integers(1, 20))
def test_any_answer_gives_a_decision_for_every_line_or_none(answer: str, n_lines: int) -> None:
    found = answered_lines(answer, n_lines)
    assert found is None or len(found) == n_lines
