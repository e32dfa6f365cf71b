"""docs/methods.md, Plan-guided pruning: the rule and its ablations."""

import json
from typing import Any

import pytest

from pipeline.arms.plan_prune import PlanPrunePolicy, choice_of
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.policy import CallKind, Policy, RequestedToolCall
from pipeline.views.prune_tool import NAME, prune_answer
from pipeline.views.shown import live_outputs
from pipeline.views.trajectory import Part, view_messages
from tests.context.arms import arm
from tests.context.counters import WordCounter
from tests.context.scripts import (
    Act,
    Ran,
    Round,
    calls,
    no_answer,
    planctl,
    prunes,
    read,
    rounds,
    run,
    says,
    set_plan,
)

PLACEHOLDER = "[Earlier command output omitted.]"
DONE_1 = planctl(("complete", 1), ("start", 2), output="step 1 done")


def policy(spec: ArmSpec, seed: int = 0, *, text_mode: bool = False) -> Policy:
    return policy_for(
        spec, seed=seed, count_tokens=WordCounter(), context_length=30_000, text_mode=text_mode
    )


def two_reads_then_done() -> list[Round]:
    return rounds(set_plan(3), read("a.py"), read("b.py"), DONE_1)


def contents(ran: Ran) -> list[str]:
    return [m["content"] for m in view_messages(ran.trajectory, ran.standing)]


def listed(ran: Ran, call: int = 0) -> str:
    return ran.requests[call].edits[0].text.split("Outputs you can still see:\n")[1]


def test_completing_a_plan_step_pauses_for_one_cleanup_turn() -> None:
    ran = run(policy(arm("plan_prune")), [*two_reads_then_done(), *rounds(read("c.py"))], prunes())
    assert [r.kind for r in ran.requests] == [CallKind.CLEANUP]
    assert ran.trajectory.decisions[0].message_index == 10


def test_a_turn_with_several_actions_is_cleaned_up_once_and_after_all_of_them() -> None:
    both = Round(acts=(planctl(("complete", 1)), planctl(("start", 2)), read("c.py")))
    ran = run(policy(arm("plan_prune")), [*two_reads_then_done()[:3], both], prunes())
    assert len(ran.requests) == 1
    assert ran.requests[0].edits[0].message_index == ran.trajectory.messages[-1].index


def test_no_cleanup_without_a_completed_step() -> None:
    revised = rounds(set_plan(2), read("a.py"), planctl(("rename", 1)), planctl(("add", 3)))
    ran = run(policy(arm("plan_prune")), revised, no_answer)
    assert ran.standing == {}


def test_a_format_error_after_the_cleanup_asks_no_second_time() -> None:
    ran = run(policy(arm("plan_prune")), [*two_reads_then_done(), Round(), Round()], prunes())
    assert len(ran.requests) == 1


def test_completing_the_last_step_triggers_no_cleanup() -> None:
    script = rounds(set_plan(1), read("a.py"), read("b.py"), planctl(("complete", 1)))
    run(policy(arm("plan_prune")), script, no_answer)


def test_a_step_counts_as_last_when_the_others_were_dropped() -> None:
    script = rounds(set_plan(2), read("a.py"), planctl(("drop", 2)), planctl(("complete", 1)))
    run(policy(arm("plan_prune")), script, no_answer)


def test_the_prompt_is_appended_to_the_last_tool_result_for_that_call_only() -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), prunes(1))
    (edit,) = ran.requests[0].edits
    assert (edit.message_index, edit.part) == (9, Part.CONTENT)
    assert edit.text.startswith("step 1 done\nYou have completed part of your plan. ")
    assert contents(ran)[-1] == "step 1 done"


def test_the_prompt_opens_with_the_given_words_and_sets_no_quota() -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), prunes())
    prompt = ran.requests[0].edits[0].text.removeprefix("step 1 done\n")
    assert prompt.startswith(
        "You have completed part of your plan. Pause coding for this response and review what you"
        " have worked on. Decide which command outputs you no longer need for the remaining work"
        " and the overall task."
    )
    assert "There is no required amount to delete." in prompt


def test_the_prompt_may_be_a_user_message() -> None:
    ran = run(policy(arm("plan_prune_user_message")), two_reads_then_done(), prunes())
    (edit,) = ran.requests[0].edits
    assert (edit.message_index, edit.part) == (10, Part.INSERTED)


def test_the_listing_has_id_tokens_plan_step_and_shortened_command() -> None:
    long = Act(command="python -c '" + "x" * 100 + "'", output="one two three four five six")
    ran = run(policy(arm("plan_prune")), rounds(read("z.py"), set_plan(2), long, DONE_1), prunes())
    first, second = listed(ran).splitlines()
    assert first == "[1] 20 tokens · no plan step · cat z.py"
    assert second.startswith("[2] 6 tokens · plan step 1 · python -c 'xxx")
    assert second.endswith("…")
    assert len(second) < 100


def test_the_listing_leaves_out_the_plan_step_column_where_asked() -> None:
    ran = run(policy(arm("plan_prune_no_step_column")), two_reads_then_done(), prunes())
    assert listed(ran).splitlines()[0] == "[1] 20 tokens · cat a.py"


def test_the_listing_counts_an_elided_output_as_it_is_shown() -> None:
    script = rounds(set_plan(2), Act(command="cat big", output="word " * 6000), DONE_1)
    ran = run(policy(arm("plan_prune")), script, prunes())
    tokens = int(listed(ran).split()[1])
    assert 1900 < tokens < 2200


def test_outputs_shorter_than_the_placeholder_are_not_offered() -> None:
    script = rounds(set_plan(2), Act(command="true"), read("b.py"), DONE_1)
    assert listed(run(policy(arm("plan_prune")), script, prunes())).startswith("[2] ")


def test_nothing_is_asked_while_nothing_can_be_pruned() -> None:
    run(policy(arm("plan_prune")), rounds(set_plan(2), DONE_1), no_answer)


@pytest.mark.parametrize(
    ("mode", "sent"),
    [
        ("named", {"type": "function", "function": {"name": "prune_observations"}}),
        ("required", "required"),
        ("auto", "auto"),
    ],
)
def test_tool_choice_is_named_required_or_auto(mode: str, sent: object) -> None:
    ran = run(policy(arm("plan_prune", tool_choice=mode)), two_reads_then_done(), prunes())
    assert ran.requests[0].tool_choice == sent


def test_a_pruned_output_becomes_the_placeholder_and_its_command_stays() -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), prunes(1))
    view = view_messages(ran.trajectory, ran.standing)
    assert view[5]["content"] == PLACEHOLDER
    assert json.loads(view[4]["tool_calls"][0]["function"]["arguments"]) == {"command": "cat a.py"}
    assert "b.py:0" in view[7]["content"]
    assert [e.reason for e in ran.standing.values()] == ["prune"]


def test_the_placeholder_is_the_arms_or_the_sweeps_to_choose() -> None:
    spec = ArmSpec(name="p", policy=arm("plan_prune").policy, placeholder="(gone: {lines}, {id})")
    assert "(gone: 1, 2)" in contents(run(policy(spec), two_reads_then_done(), prunes(2)))


def test_the_cleanup_turn_is_erased_from_the_context() -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), prunes(1))
    assert len(view_messages(ran.trajectory, ran.standing)) == len(ran.trajectory.messages)
    assert not any("Pause coding" in text for text in contents(ran))


def test_the_newest_turn_is_never_pruned() -> None:
    last = Round(acts=(read("b.py"), planctl(("complete", 1))))
    script = [*rounds(set_plan(2), read("a.py")), last]
    ran = run(policy(arm("plan_prune")), script, prunes(1, 2))
    assert [e.message_index for e in ran.standing.values()] == [5]
    wider = run(policy(arm("plan_prune", protect_last_turns=2)), script, no_answer)
    assert wider.standing == {}


def test_plan_results_have_no_id_and_are_never_pruned() -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), prunes(1, 2, 3, 4))
    assert {ran.trajectory.messages[i].tool for i, _ in ran.standing} == {"bash"}


@pytest.mark.parametrize(
    "answer",
    [
        calls(NAME, '{"ids": [1'),
        calls(NAME, '["1"]'),
        calls(NAME, '{"ids": "1"}'),
        calls("bash", '{"command": "ls"}'),
        says("I would rather go on coding."),
        says(""),
    ],
)
def test_an_unusable_answer_prunes_nothing(answer: object) -> None:
    ran = run(policy(arm("plan_prune")), two_reads_then_done(), answer)  # type: ignore[arg-type]
    assert ran.standing == {}


def test_what_cannot_be_pruned_is_ignored() -> None:
    script = [*two_reads_then_done(), *rounds(read("c.py"))]
    ran = run(policy(arm("plan_prune")), script, prunes(1))
    live = live_outputs(ran.trajectory, ran.standing, protect_last_turns=1)
    asked = RequestedToolCall(id="a", name=NAME, arguments='{"ids": [1, "2", 3, 77, "all"]}')
    assert choice_of(prune_answer("", [asked]), live).chosen == (2,)


def test_ids_stay_the_same_from_one_cleanup_to_the_next() -> None:
    script = [
        *two_reads_then_done(),
        *rounds(read("c.py"), planctl(("complete", 2), ("start", 3))),
    ]
    ran = run(policy(arm("plan_prune")), script, prunes(1))
    assert [line[:3] for line in listed(ran, 1).splitlines()] == ["[2]", "[3]"]


def test_the_tool_takes_ids_and_a_note_where_it_is_kept() -> None:
    for name, arguments in (("plan_prune", ["ids"]), ("plan_prune_note", ["ids", "note"])):
        (schema,) = schemas(arm(name))
        assert schema["function"]["name"] == "prune_observations"
        assert list(schema["function"]["parameters"]["properties"]) == arguments
        assert schema["function"]["parameters"]["required"] == ["ids"]


def test_models_without_tool_calls_answer_with_a_line() -> None:
    text_policy = policy(arm("plan_prune"), text_mode=True)
    ran = run(
        text_policy, two_reads_then_done(), says("Fine.\nprune_observations 1 2"), text_mode=True
    )
    assert len(ran.edits("prune")) == 2
    assert ran.requests[0].tool_choice is None
    assert "Answer with one line" in ran.requests[0].edits[0].text


def schemas(spec: ArmSpec) -> list[dict[str, Any]]:
    return [tool.schema for tool in spec.policy.tools]


def test_sham_cleanup_asks_the_same_and_prunes_nothing() -> None:
    real = run(policy(arm("plan_prune")), two_reads_then_done(), prunes(1, 2))
    sham = run(policy(arm("sham_cleanup")), two_reads_then_done(), prunes(1, 2))
    assert sham.requests == real.requests
    assert sham.standing == {}
    assert sham.trajectory.decisions[0].tool_calls == real.trajectory.decisions[0].tool_calls
    assert schemas(arm("sham_cleanup")) == schemas(arm("plan_prune"))


def test_full_history_and_no_plan_ask_and_edit_nothing() -> None:
    for name in ("full_history", "no_plan"):
        ran = run(policy(arm(name)), two_reads_then_done(), no_answer)
        assert ran.standing == {}
        assert arm(name).policy.tools == ()
    assert arm("full_history").plan
    assert not arm("no_plan").plan


def test_cleanup_every_k_turns_instead_of_plan_steps() -> None:
    script = rounds(*[read(f"{k}.py") for k in range(7)])
    ran = run(policy(arm("every_k", every_k=3)), script, prunes())
    assert [d.message_index for d in ran.trajectory.decisions] == [8, 14]


def test_random_pruning_removes_about_the_rates_tokens_at_the_same_moments() -> None:
    script = rounds(set_plan(2), *[read(f"{k}.py") for k in range(40)], DONE_1)
    for rate in (0.25, 0.5, 0.75):
        spec = arm("random_prune", random_rate=rate)
        ran = run(policy(spec, seed=3), script, no_answer)
        assert len(ran.edits("prune")) == pytest.approx(40 * rate, abs=1)
        assert [m.n_messages for m in ran.moments if m.new] == [len(ran.trajectory.messages)]
    other = run(policy(arm("random_prune"), seed=4), script, no_answer)
    assert other.standing != run(policy(arm("random_prune"), seed=3), script, no_answer).standing


def test_prune_all_of_the_finished_step_asks_nobody() -> None:
    script = rounds(
        read("before.py"),
        set_plan(3),
        read("a.py"),
        read("b.py"),
        DONE_1,
        read("c.py"),
        planctl(("complete", 2), ("start", 3)),
    )
    ran = run(policy(arm("prune_finished_step")), script, no_answer)
    by_moment = [
        [ran.trajectory.messages[e.message_index].command for e in m.new] for m in ran.moments
    ]
    assert [m for m in by_moment if m] == [["cat a.py", "cat b.py"], ["cat c.py"]]


def test_reasoning_of_finished_steps_may_go_too() -> None:
    thinking = [
        Round(acts=r.acts, reasoning=f"thought {k}") for k, r in enumerate(two_reads_then_done())
    ]
    ran = run(policy(arm("plan_prune_reasoning")), thinking, prunes(1))
    gone = [i for i, part in ran.standing if part is Part.REASONING]
    assert [ran.trajectory.messages[i].reasoning for i in gone] == ["thought 1", "thought 2"]


def test_the_note_keeps_facts_in_the_newest_placeholder() -> None:
    ran = run(
        policy(arm("plan_prune_note")), two_reads_then_done(), prunes(1, 2, note="a.py sets x to 1")
    )
    assert contents(ran)[5] == PLACEHOLDER
    assert contents(ran)[7] == f"{PLACEHOLDER} Note: a.py sets x to 1"


def test_prune_observations_may_be_honoured_in_an_ordinary_turn() -> None:
    own = Act(command='{"ids": [1]}', output="noted", tool="prune_observations")
    script = rounds(read("a.py"), read("b.py"), own)
    assert run(policy(arm("plan_prune")), script, no_answer).standing == {}
    spec = arm("plan_prune", honour_anytime=True)
    assert len(run(policy(spec), script, no_answer).edits("prune")) == 1


def test_the_policy_is_the_one_the_arm_names() -> None:
    assert isinstance(policy(arm("plan_prune")), PlanPrunePolicy)
