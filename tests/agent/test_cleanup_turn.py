"""The cleanup turn as the server meets it: where it rides, what it costs, what it leaves."""

import json

import pytest

from pipeline.arms.plan_prune import PlanPrune
from pipeline.records.failure import FailureClass
from pipeline.spec.arm import ArmSpec
from pipeline.spec.model import ModelSpec
from pipeline.spec.run import request_seed
from tests.agent.rollouts import PRUNE, SHAM, contents, model_spec, rebuilt, rollout, tool_names
from tests.fakes import Message, Reply, bash, call, planctl, says, submits

OPENING = "You have completed part of your plan."
PLACEHOLDER = "[Earlier command output omitted.]"
LONG = "a line of output that is long enough to be worth removing\n" * 5
AS_USER = ArmSpec(name="cleanup_as_user", policy=PlanPrune(prompt_as="user_message"))


def is_cleanup(request: Message) -> bool:
    return OPENING in contents(request)[-1]


def work(*answers: Reply) -> list[Reply]:
    """Two plan steps; `answers` are the answers to the cleanup between them."""
    return [
        says("", planctl("set", steps=["a", "b"]), planctl("start", step=1)),
        says("", bash("cat one"), reasoning="First."),
        says("", bash("cat two")),
        says("", planctl("complete", outcome="read"), bash("cat three")),
        *answers,
        says("", planctl("start", step=2), bash("ls")),
        says("", planctl("complete", outcome="done")),
        submits(),
    ]


def run(arm: ArmSpec, *answers: Reply, model: ModelSpec | None = None):
    outputs = {"cat one": LONG, "cat two": LONG, "cat three": LONG}
    return rollout(work(*answers), arm=arm, results=outputs, model=model)


def prunes(*ids: int, **more: str) -> Reply:
    return says("", call("prune_observations", ids=list(ids), **more))


def test_it_rides_on_the_last_tool_result_of_the_turn_that_completed_a_step():
    _, requests = run(PRUNE, prunes(1))
    (cleanup,) = [r for r in requests if is_cleanup(r)]
    last = cleanup["messages"][-1]
    assert (last["role"], requests.index(cleanup)) == ("tool", 4)
    assert last["content"].startswith(f"<returncode>0</returncode>\n<output>\n{LONG}")
    assert f"\n{OPENING}" in last["content"]
    before = requests[3]["messages"]
    assert cleanup["messages"][: len(before)] == before


def test_it_forces_the_prune_tool_and_keeps_the_tool_list():
    _, requests = run(PRUNE, prunes(1))
    for request in requests:
        forced = {"type": "function", "function": {"name": "prune_observations"}}
        assert request.get("tool_choice") == (forced if is_cleanup(request) else None)
        assert tool_names(request) == ["bash", "planctl", "prune_observations"]


def test_it_is_erased_from_the_context_and_only_its_choice_stays():
    outcome, requests = run(PRUNE, prunes(1))
    for request in requests[5:]:
        assert OPENING not in str(request["messages"])
        assert contents(request)[6] == PLACEHOLDER
        assert LONG in contents(request)[8]
    assert outcome.failure_class is FailureClass.OK
    assert all(OPENING not in m.content for m in outcome.messages)
    assert LONG in outcome.messages[6].content


def test_commands_stay_when_their_outputs_go():
    _, requests = run(PRUNE, prunes(1, 2))
    commands = str([m.get("tool_calls") for m in requests[-1]["messages"]])
    assert "cat one" in commands
    assert "cat two" in commands


def test_it_is_counted_as_a_call_of_its_own_and_advances_no_step():
    outcome, requests = run(PRUNE, prunes(1))
    kinds = [(c.kind, c.step_index) for c in outcome.calls]
    assert kinds[3:6] == [("step", 4), ("cleanup", 4), ("step", 5)]
    assert requests[4]["seed"] == request_seed(7, "toy__pair-1", "cleanup", 4)
    assert requests[5]["seed"] == request_seed(7, "toy__pair-1", "step", 5)


def test_its_answer_is_kept_as_a_decision_and_on_its_call():
    outcome, _ = run(PRUNE, says("Drop it.", call("prune_observations", ids=[1])))
    (decision,) = outcome.decisions
    assert (decision.kind, decision.call_index, decision.content) == ("cleanup", 4, "Drop it.")
    assert decision.tool_calls[0].name == "prune_observations"
    assert outcome.calls[4].reply == "Drop it."
    assert outcome.calls[4].reply_tool_calls == decision.tool_calls


@pytest.mark.parametrize("arm", [PRUNE, SHAM, AS_USER])
def test_every_request_can_be_rebuilt_from_the_record(arm):
    outcome, requests = run(arm, prunes(2, 1))
    assert [r["messages"] for r in requests] == rebuilt(outcome)


def test_as_a_user_message_it_leaves_every_result_as_it_was():
    _, requests = run(AS_USER, prunes(1))
    cleanup = requests[4]["messages"]
    assert cleanup[-1]["role"] == "user"
    assert cleanup[-1]["content"].startswith(OPENING)
    assert "role': 'user', 'content': 'You have completed" not in str(requests[5]["messages"])


def test_the_sham_asks_the_same_and_prunes_nothing():
    _, real = run(PRUNE, prunes(1))
    outcome, sham = run(SHAM, prunes(1))
    assert sham[4]["messages"] == real[4]["messages"]
    assert PLACEHOLDER not in str(sham)
    assert len(outcome.decisions) == 1


@pytest.mark.parametrize(
    "answer",
    [
        says("I keep everything."),
        says("", call("bash", command="ls")),
        prunes(99),
        says(
            "", {"type": "function", "function": {"name": "prune_observations", "arguments": "{"}}
        ),
    ],
)
def test_an_unusable_answer_prunes_nothing_and_the_run_goes_on(answer):
    outcome, requests = run(PRUNE, answer)
    assert PLACEHOLDER not in str(requests)
    assert outcome.failure_class is FailureClass.OK
    assert len(outcome.calls) == 8


def test_what_it_names_in_vain_is_recorded_with_the_call():
    """Offered were 1 and 2: 3 is of the newest turn, 99 of nothing, and a word is no id."""
    outcome, _ = run(PRUNE, says("", call("prune_observations", ids=[1, 3, 99, "two"])))
    assert json.loads(outcome.calls[4].ignored_ids) == ["3", "99", "two"]
    assert [call.ignored_ids for call in outcome.calls if call.kind == "step"] == [None] * 7


def test_completing_the_last_step_asks_nothing():
    _, requests = run(PRUNE, prunes())
    assert sum(map(is_cleanup, requests)) == 1


def test_a_format_error_after_it_does_not_bring_it_back():
    outcome, requests = run(PRUNE, prunes(1), says("no call"))
    assert [is_cleanup(r) for r in requests] == [r is requests[4] for r in requests]
    assert [c.kind for c in outcome.calls].count("cleanup") == 1


def test_a_cleanup_that_does_not_fit_the_window_prunes_nothing():
    too_long = says(status=400, body=b"maximum context length exceeded")
    script = iter(work())

    def answer(request: Message) -> Reply:
        return too_long if is_cleanup(request) else next(script)

    outcome, _ = rollout(answer, arm=PRUNE, results={"cat one": LONG, "cat two": LONG})
    assert outcome.failure_class is FailureClass.OK
    (cleanup,) = [c for c in outcome.calls if c.kind == "cleanup"]
    assert cleanup.prompt_tokens is None
    assert cleanup.error.startswith("overflow")
    assert outcome.decisions[0].content == ""


def test_in_text_mode_it_is_asked_for_one_line_and_offers_no_tools():
    def block(text: str) -> Reply:
        return says(f"Now.\n```mswea_bash_command\n{text}\n```")

    script = [
        block("planctl set a | b\nplanctl start 1\ncat one"),
        block("cat two"),
        block("ls\nplanctl complete read"),
        says("prune_observations 1"),
        block("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"),
    ]
    outcome, requests = rollout(
        script,
        arm=PRUNE,
        model=model_spec(mode="text"),
        results={"cat one": LONG, "cat two": LONG},
    )
    assert is_cleanup(requests[3])
    assert all("tools" not in r and "tool_choice" not in r for r in requests)
    assert PLACEHOLDER in contents(requests[4])
    assert [r["messages"] for r in requests] == rebuilt(outcome)
    assert outcome.tools == {}
