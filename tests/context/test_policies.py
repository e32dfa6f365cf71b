"""What every arm must keep, whatever the run contains (docs/methods.md, Protocol)."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.policy import AuxReply, AuxRequest, Policy
from pipeline.views.shown import STANDING_REASONS, ShownTokens
from pipeline.views.trajectory import PLAN_TOOLS, Edit, Part, merged, view_messages
from tests.context.arms import all_arms, arm, few_arms
from tests.context.counters import WordCounter
from tests.context.scripts import Answers, Ran, Round, no_answer, read, rounds, run, set_plan
from tests.context.scripts import planctl as plan_act
from tests.context.strategies import answers, long_scripts, scripts

ARMS = all_arms()
FEW = sorted(few_arms())
FAST = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def policy(spec: ArmSpec, seed: int = 0, *, text_mode: bool = False) -> Policy:
    return policy_for(
        spec, seed=seed, count_tokens=WordCounter(), context_length=4000, text_mode=text_mode
    )


def protected_turns(spec: ArmSpec) -> int:
    """The newest turns whose outputs the arm promises to leave whole."""
    p = spec.policy
    for name in ("keep_last_turns", "protect_last_turns", "unused_turns"):
        if hasattr(p, name):
            mask = getattr(p, "mask_keep_last_turns", None)
            return min(getattr(p, name), mask) if mask is not None else getattr(p, name)
    if p.kind == "deletion":
        return p.output_delay if p.scope != "reasoning" else 99
    return {"agent_diet": 2, "clear_thinking": 99}.get(p.kind, 0)


def is_removal(edit: Edit) -> bool:
    return edit.part in (Part.CONTENT, Part.DROPPED) and edit.reason not in STANDING_REASONS


def check(ran: Ran, spec: ArmSpec) -> None:
    messages = ran.trajectory.messages
    for moment in ran.moments:
        for edit in moment.new:
            old = moment.before.get((edit.message_index, edit.part))
            if edit.part is not Part.INSERTED:
                message = messages[edit.message_index]
                assert edit.message_index >= 2, "system and task messages are never edited"
                assert message.index < moment.n_messages
                assert message.tool not in PLAN_TOOLS, "plan results are never edited"
                if message.role == "user" and not message.is_observation:
                    assert edit.part is Part.DROPPED, "format errors may only go with their turns"
            if old is not None and edit.part is Part.CONTENT:
                shorter = len(edit.text) < len(old.text)
                assert shorter or old.reason in STANDING_REASONS, "nothing comes back"
            assert old is None or old.text != edit.text, "only what is new is returned"
        check_protected(ran, moment.n_turns, moment.new, protected_turns(spec))
        after = merged(moment.before, moment.new)
        check_pairs(view_messages(ran.trajectory, after)[: moment.n_messages + 1])


def check_protected(ran: Ran, n_turns: int, new: Any, protect: int) -> None:
    turns = [t for t in ran.trajectory.turns if t.observations][:n_turns]
    newest = {m.index for t in turns[max(0, n_turns - protect) :] for m in t.observations}
    if protect:
        assert not [e for e in new if is_removal(e) and e.message_index in newest]


def check_pairs(view: list[dict[str, Any]]) -> None:
    """Every tool call is followed by its result, in order, and no result stands alone."""
    waiting: list[str] = []
    for message in view:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
            waiting.append(call["id"])


@pytest.mark.parametrize("name", sorted(ARMS))
@given(script=scripts, answer=answers())
@FAST
def test_every_arm_keeps_the_shared_rules(name: str, script: list[Round], answer: Answers) -> None:
    check(run(policy(ARMS[name]), script, answer), ARMS[name])


@pytest.mark.parametrize("name", ["hybrid_early", "llm_summary", "plan_prune", "observation_mask"])
@given(script=long_scripts, answer=answers())
@FAST
def test_every_arm_keeps_the_shared_rules_in_long_runs(
    name: str, script: list[Round], answer: Answers
) -> None:
    check(run(policy(ARMS[name]), script, answer), ARMS[name])


@pytest.mark.parametrize("name", FEW)
@given(script=scripts, answer=answers())
@FAST
def test_every_arm_works_for_models_without_tool_calls(
    name: str, script: list[Round], answer: Answers
) -> None:
    ran = run(policy(ARMS[name], text_mode=True), script, answer, text_mode=True)
    for moment in ran.moments:
        for edit in moment.new:
            assert edit.message_index >= 2
            assert edit.part is not Part.TOOL_CALLS


@pytest.mark.parametrize("name", FEW)
@given(script=scripts, answer=answers(), seed=st.integers(0, 3))
@FAST
def test_a_policy_decides_the_same_again_from_the_recorded_decisions(
    name: str, script: list[Round], answer: Answers, seed: int
) -> None:
    first = run(policy(ARMS[name], seed), script, answer)
    again = run(policy(ARMS[name], seed), script, no_answer, decisions=first.trajectory.decisions)
    assert [m.new for m in again.moments] == [m.new for m in first.moments]
    assert again.requests == []


@pytest.mark.parametrize("name", FEW)
@given(script=scripts, answer=answers())
@FAST
def test_token_counts_of_a_view_are_those_of_the_messages_sent(
    name: str, script: list[Round], answer: Answers
) -> None:
    ran = run(policy(ARMS[name]), script, answer)
    count = WordCounter().count
    sent = sum(
        count(m["content"])
        + count(m.get("reasoning", ""))
        + sum(
            count(c["function"]["name"]) + count(c["function"]["arguments"])
            for c in m.get("tool_calls", ())
        )
        for m in view_messages(ran.trajectory, ran.standing)
    )
    assert ShownTokens(WordCounter()).of_view(ran.trajectory, ran.standing) == sent


@pytest.mark.parametrize("name", FEW)
def test_every_arm_survives_a_ten_megabyte_output(name: str) -> None:
    huge = "line of output\n" * 700_000
    script = rounds(set_plan(2), read("a.py"), read("big"), plan_act(("complete", 1)), read("b"))
    script[2] = Round(acts=(script[2].acts[0].__class__(command="cat big", output=huge),))
    ran = run(policy(ARMS[name]), script, lambda r: AuxReply(kind=r.kind, content=""))
    shown = view_messages(ran.trajectory, ran.standing)
    assert max(len(m["content"]) for m in shown) < 12_000


def test_a_dead_server_ends_a_cleanup_and_prunes_nothing() -> None:
    script = rounds(set_plan(2), read("a.py"), read("b.py"), plan_act(("complete", 1)))

    def dead(_: AuxRequest) -> AuxReply:
        raise ServerError("gone")

    def full(_: AuxRequest) -> AuxReply:
        raise ContextOverflowError("full")

    with pytest.raises(ServerError):
        run(policy(arm("plan_prune")), script, dead)
    with pytest.raises(ContextOverflowError):
        run(policy(arm("plan_prune")), script, full)
