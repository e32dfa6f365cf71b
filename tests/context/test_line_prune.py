"""SWE-Pruner Pro's arm: asks once about each output, and shows the kept lines a call later."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.arms.swe_pruner_pro import SCORES, SwePrunerPro, SwePrunerProPolicy, score_failures
from pipeline.views.kept_lines import TokenLines, split_lines
from pipeline.views.line_scores import encoded, response_params, wanted_texts
from pipeline.views.policy import AsksServer, AuxReply, AuxRequest, ServerQuestion
from pipeline.views.trajectory import (
    Decision,
    Edit,
    Message,
    Part,
    Trajectory,
    merged,
    view_messages,
)
from tests.context.driving import context

LONG = "".join(f"{'keep' if i % 4 == 0 else 'drop'} {i}\n" for i in range(9))


def ask(_request: AuxRequest) -> AuxReply:
    raise AssertionError("this arm makes no calls of its own")


def answer_for(text: str) -> dict[str, object]:
    lines = split_lines(text)
    places = np.arange(len(lines))
    scores = [0.9 if line.startswith("keep") else 0.1 for line in lines]
    return encoded(scores, TokenLines(first=places, last=places, n_lines=len(lines)))


class Run:
    """A run by hand: outputs arrive, the policy decides, the server answers."""

    def __init__(self, **spec: object) -> None:
        self.policy = SwePrunerProPolicy(
            SwePrunerPro(**{"min_chars": 20, **spec}),  # type: ignore[arg-type]
            context(),
        )
        self.trajectory = Trajectory()
        self.standing: dict[tuple[int, Part], Edit] = {}
        self.add("system", "s")
        self.add("user", "u")

    def add(self, role: str, content: str, step: int = 0, **more: Any) -> None:
        index = len(self.trajectory.messages)
        self.trajectory.append(
            [Message(index=index, step_index=step, role=role, content=content, **more)]
        )

    def turn(self, *outputs: str, tool: str = "bash", frame: tuple[str, str] = ("", "")) -> None:
        step = len(self.trajectory.turns) + 1
        self.add("assistant", "next", step=step)
        for output in outputs:
            content, start = output.join(frame), len(frame[0])
            self.add("tool", content, step, tool=tool, output=output, output_start=start)

    def decide(self) -> list[Edit]:
        edits = list(self.policy.decide(self.trajectory, self.standing, ask))
        self.standing = merged(self.standing, edits)
        return edits

    def step(self, answers: Sequence[object] | None = None) -> ServerQuestion | None:
        """Make a step call; the server answers what it is asked, or `answers`."""
        self.decide()
        question = self.policy.server_question(self.trajectory, self.standing)
        if question is not None:
            texts = wanted_texts(question.params)
            own = [answer_for(t) for t in texts] if answers is None else answers
            answer = {"messages": list(question.messages), "answer": response_params(own, 0)}  # type: ignore[arg-type]
            self.trajectory.decisions.append(
                Decision(
                    kind=SCORES,
                    message_index=len(self.trajectory.messages),
                    call_index=0,
                    content=json.dumps(answer),
                )
            )
        return question

    def shown(self, index: int) -> str:
        return str(view_messages(self.trajectory, self.standing)[index]["content"])


KEPT = "keep 0\n(filtered 3 lines)\nkeep 4\n(filtered 3 lines)\nkeep 8\n"


def test_the_policy_is_one_that_asks_the_server() -> None:
    assert isinstance(Run().policy, AsksServer)


def test_the_next_call_sees_the_whole_output_and_the_one_after_the_kept_lines() -> None:
    run = Run()
    run.turn(LONG)
    question = run.step()
    assert question is not None
    assert wanted_texts(question.params) == [LONG]
    assert run.shown(3) == LONG
    run.turn("short\n")
    assert run.step() is None
    assert run.shown(3) == KEPT


def test_an_output_is_asked_about_once_and_edited_once() -> None:
    run = Run()
    run.turn(LONG)
    run.step()
    run.turn(LONG)
    question = run.step()
    assert question is not None
    assert list(question.messages) == [5]
    run.turn("x")
    assert [e.message_index for e in run.decide()] == [5]
    assert run.decide() == []
    assert run.shown(3) == run.shown(5) == KEPT


def test_a_format_error_after_the_question_changes_nothing() -> None:
    run = Run()
    run.turn(LONG)
    run.step()
    # The reply was unusable: the history gets an error message and no turn.
    run.add("user", "no tool call found", step=2)
    assert run.step() is None
    assert run.shown(3) == KEPT


def test_short_outputs_and_plan_results_are_left_alone() -> None:
    run = Run(min_chars=len(LONG) + 1)
    run.turn(LONG)
    assert run.step() is None
    run = Run()
    run.turn(LONG, tool="planctl")
    assert run.step() is None


def test_several_outputs_of_a_turn_are_asked_about_together() -> None:
    run = Run()
    run.turn(LONG, "tiny", LONG.replace("keep", "drop"))
    question = run.step()
    assert question is not None
    assert list(question.messages) == [3, 5]
    run.turn("x")
    run.decide()
    assert run.shown(3) == KEPT
    assert run.shown(5) == "(filtered 9 lines)\n"


def test_an_output_without_scores_passes() -> None:
    run = Run()
    run.turn(LONG, LONG)
    run.step([{"error": "the head failed"}, answer_for(LONG)])
    run.turn("x")
    assert [e.message_index for e in run.decide()] == [4]
    assert run.shown(3) == LONG
    run = Run()
    run.turn(LONG)
    run.step([])
    run.turn("x")
    assert run.decide() == []


def test_what_was_elided_is_scored_as_it_is_shown() -> None:
    run = Run()
    run.turn("gone\n" + LONG)
    elided = Edit(message_index=3, part=Part.CONTENT, text=LONG, reason="elide")
    run.standing = merged(run.standing, [elided])
    question = run.step()
    assert question is not None
    assert wanted_texts(question.params) == [LONG]
    run.turn("x")
    run.decide()
    assert run.shown(3) == KEPT


def test_the_same_history_gives_the_same_edits_when_it_is_run_again() -> None:
    run = Run()
    for _ in range(3):
        run.turn(LONG)
        run.step()
    run.turn("end")
    run.decide()
    again = Trajectory(decisions=list(run.trajectory.decisions))
    standing: dict[tuple[int, Part], Edit] = {}
    for message in run.trajectory.messages:
        again.append([message])
        following = len(again.messages)
        if following == len(run.trajectory.messages) or (
            run.trajectory.messages[following].role == "assistant"
        ):
            standing = merged(standing, run.policy.decide(again, standing, ask))
    assert standing == run.standing
    assert len(standing) == 3


def test_thresholds_gaps_and_the_marker_are_parameters() -> None:
    run = Run(threshold=0.05)
    run.turn(LONG)
    run.step()
    run.turn("x")
    assert run.decide() == []


@pytest.mark.parametrize(
    ("answer", "n_failed"),
    [
        (None, 2),
        ({}, 2),
        ({"line_scores": {"outputs": [{"scores": [0.5]}]}}, 2),
        ({"line_scores": {"outputs": [{"scores": [0.5]}, {"error": "off"}]}}, 1),
        ({"line_scores": {"outputs": [{"scores": [0.5]}, {"scores": [0.1]}]}}, 0),
    ],
)
def test_outputs_that_came_without_scores_are_counted_as_failures(answer, n_failed) -> None:
    content = json.dumps({"messages": [3, 5], "answer": answer})
    scores = Decision(message_index=6, call_index=1, kind=SCORES, content=content)
    other = Decision(message_index=7, call_index=2, kind="cleanup", content="{}")
    assert score_failures([scores, other]) == (2, n_failed)
