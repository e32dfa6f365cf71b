"""A line pruner in a run, over real HTTP: what the model is sent, what is recorded, what fails."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.agent.bash_tool import BASH_SCHEMA
from pipeline.agent.rollout import RunOutcome
from pipeline.arms.rag import Rag
from pipeline.arms.swe_pruner import SwePruner
from pipeline.protocols import LinePruner, PrunerError
from pipeline.records.rows import call_rows, run_row
from pipeline.replaying.treatment import Treatment, Verdict, treatment_of
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.focus import FOCUS_ARGUMENT
from pipeline.views.policy import PruneRequest
from pipeline.views.trajectory import Trajectory
from tests.agent.rollouts import FULL, contents, rebuilt, rollout
from tests.fakes import WordCounter, bash, call, says, submits
from tests.records.samples import full_run

RAG = ArmSpec(name="rag", policy=Rag(model="m", min_chars=100), plan=False)
V1 = ArmSpec(name="swe_pruner", policy=SwePruner(min_chars=100), plan=False)
LONG = "".join(
    f"needle {i} zwölf Ω\r\n" if i % 4 == 0 else f"hay {i} " * 9 + "\n" for i in range(9)
)
SCRIPT = (says("a", bash("cat f")), says("b", bash("true")), submits())
RESULTS = {"cat f": LONG, "true": "ok"}


class Needles:
    """Keeps the lines with a needle."""

    def __init__(self) -> None:
        self.requests: list[PruneRequest] = []

    def prune(self, request: PruneRequest) -> Sequence[bool]:
        self.requests.append(request)
        lines = request.text.split("\n")
        return ["needle" in line for line in (lines if lines[-1] else lines[:-1])]


class Broken:
    """Fails on every output."""

    def prune(self, request: PruneRequest) -> Sequence[bool]:
        raise PrunerError(f"no memory for {len(request.text)} characters")


def outcome_of(arm: ArmSpec, pruner: LinePruner | None, script=SCRIPT):
    return rollout(script, arm=arm, results=RESULTS, pruner=pruner)


def test_the_models_next_call_sees_the_kept_lines_only() -> None:
    outcome, requests = outcome_of(RAG, Needles())
    _, whole = outcome_of(replace(FULL, plan=False), None)
    shown = contents(requests[1])[3]
    assert "needle 0 zwölf Ω\r\n(filtered 3 lines)\nneedle 4 zwölf Ω\r\n" in shown
    assert "hay" not in shown
    assert contents(requests[2])[3] == shown
    assert LONG in contents(whole[1])[3]
    assert len(json.dumps(requests[1])) < len(json.dumps(whole[1])) - 200
    assert rebuilt(outcome)[1] == requests[1]["messages"]
    assert outcome.failure_class == "ok"


def test_the_answer_and_its_time_are_on_the_record_of_the_call_that_came_next() -> None:
    outcome, _ = outcome_of(RAG, Needles())
    (decision,) = outcome.decisions
    first, second, third = outcome.calls
    assert (decision.kind, decision.call_index, decision.message_index) == ("lines", 1, 4)
    assert second.pruner_answer == decision.content
    (output,) = json.loads(decision.content)["outputs"]
    assert output["message"] == 3
    assert output["kept"] == [[1, 1], [5, 5], [9, 9]]
    # The clock of these runs moves on by a second at every look.
    assert (first.pruner_s, second.pruner_s, third.pruner_s) == (None, 1.0, None)
    assert second.latency_s is not None


def test_a_run_is_checked_and_decided_again_without_the_pruner() -> None:
    found = treatment(outcome_of(RAG, Needles())[0])
    assert (found.verdict, found.n_unasked) == (Verdict.TREATED, 0)
    assert (found.n_judged, found.n_pruner_errors) == (1, 0)


def treatment(outcome: RunOutcome) -> Treatment:
    trajectory = Trajectory(decisions=list(outcome.decisions))
    trajectory.append(outcome.messages)
    policy = policy_for(RAG, seed=0, count_tokens=WordCounter(), context_length=4000)
    return treatment_of(
        policy,
        trajectory,
        [c.message_count for c in outcome.calls],
        [e for c in outcome.calls for e in c.edits],
    )


@pytest.mark.parametrize(
    ("pruner", "says_"),
    [(Broken(), "no memory for"), (None, "the run has no line pruner")],
)
def test_a_pruner_that_fails_leaves_the_output_whole_and_is_counted(pruner, says_: str) -> None:
    outcome, requests = outcome_of(RAG, pruner)
    assert LONG in contents(requests[1])[3]
    assert outcome.failure_class == "ok"
    (decision,) = outcome.decisions
    (output,) = json.loads(decision.content)["outputs"]
    assert says_ in output["error"]
    record = replace(full_run(), calls=outcome.calls, messages=outcome.messages)
    assert run_row(record)["n_pruner_errors"] == 1
    assert run_row(record)["pruner_s"] == 1.0
    found = treatment(outcome)
    assert (found.verdict, found.n_pruner_errors) == (Verdict.UNTREATED, 1)


def test_the_tables_say_nothing_of_pruners_where_there_was_none() -> None:
    outcome, _ = outcome_of(replace(FULL, plan=False), None)
    record = replace(full_run(), calls=outcome.calls, messages=outcome.messages)
    assert (run_row(record)["n_pruner_errors"], run_row(record)["pruner_s"]) == (None, None)
    assert [row["pruner_answer"] for row in call_rows(record)] == [None] * 3


# --- the agent's question ------------------------------------------------------------------------
def test_only_swe_pruners_bash_tool_takes_a_question() -> None:
    _, requests = outcome_of(V1, Needles())
    (tool,) = requests[0]["tools"]
    properties = tool["function"]["parameters"]["properties"]
    assert set(properties) == {"command", FOCUS_ARGUMENT}
    assert tool["function"]["parameters"]["required"] == ["command"]
    assert all(request["tools"] == requests[0]["tools"] for request in requests)
    _, requests = outcome_of(RAG, Needles())
    assert requests[0]["tools"] == [BASH_SCHEMA]


def test_the_question_goes_to_the_pruner_and_a_command_without_one_stays_whole() -> None:
    question = {FOCUS_ARGUMENT: "Where is the needle?"}
    script = (
        says("a", call("bash", command="cat f", **question)),
        says("b", bash("cat f")),
        submits(),
    )
    pruner = Needles()
    _, requests = outcome_of(V1, pruner, script)
    assert [r.query for r in pruner.requests] == ["Where is the needle?"]
    shown = contents(requests[2])
    assert "hay" not in shown[3]
    assert LONG in shown[5]
