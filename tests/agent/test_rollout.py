"""One rollout from task to submission: what is sent, what is kept."""

import json

import pytest

from pipeline.arms.discard_anytime import DiscardAnytime
from pipeline.arms.full_history import FullHistory
from pipeline.protocols import CommandResult
from pipeline.records.failure import FailureClass
from pipeline.records.rows import message_rows
from pipeline.records.run_record import text_sha256
from pipeline.spec.arm import ArmSpec
from pipeline.spec.run import request_seed
from tests.agent.rollouts import (
    FULL,
    PRUNE,
    SALT,
    agent_spec,
    contents,
    model_spec,
    rebuilt,
    rollout,
    tool_names,
)
from tests.fakes import EchoSandbox, bash, call, planctl, says, submits
from tests.records.samples import full_run

NO_PLAN = ArmSpec(name="no_plan", policy=FullHistory(), plan=False)


# --- what is sent --------------------------------------------------------------------------------
def test_a_submitted_patch_is_kept_byte_for_byte():
    patch = "diff --git a/x b/x\n-old \n+new\n\n"
    outcome, _ = rollout([says("", bash("ls")), submits()], patch=patch)
    assert outcome.failure_class is FailureClass.OK
    assert outcome.exit_status == "Submitted"
    assert outcome.patch == patch
    assert outcome.limit_patch is None


def test_the_server_receives_exactly_what_the_record_rebuilds():
    outcome, requests = rollout(
        [
            says("I plan.", planctl("set", steps=["a", "b"]), reasoning="Hm, wörk."),
            says("", planctl("start", step=1), bash("cat long"), reasoning="Read."),
            says("no call"),
            submits(),
        ],
        results={"cat long": "line\n" * 4000},
    )
    assert [r["messages"] for r in requests] == rebuilt(outcome)


def test_reasoning_is_kept_and_sent_again_as_reasoning():
    _, requests = rollout([says("", bash("ls"), reasoning="Look first."), submits()])
    assert requests[1]["messages"][2]["reasoning"] == "Look first."


def test_the_first_request_is_the_same_in_every_arm_but_for_its_tools():
    first = {}
    for arm in (FULL, PRUNE):
        _, requests = rollout([submits()], arm=arm)
        request = requests[0]
        first[arm.name] = {k: v for k, v in request.items() if k != "tools"}
        assert tool_names(request)[:2] == ["bash", "planctl"]
    assert first["full_history"] == first["plan_prune"]


def test_only_arms_that_prune_offer_the_prune_tool_and_the_list_never_changes():
    script = [says("", bash("ls")), says("", planctl("set", steps=["a"])), submits()]
    for arm, names in (
        (FULL, ["bash", "planctl"]),
        (PRUNE, ["bash", "planctl", "prune_observations"]),
        (NO_PLAN, ["bash"]),
    ):
        if arm is NO_PLAN:
            script = [says("", bash("ls")), submits()]
        _, requests = rollout(script, arm=arm)
        assert [tool_names(r) for r in requests] == [names] * len(script)


def test_without_a_plan_the_prompt_says_nothing_of_it():
    _, with_plan = rollout([submits()])
    _, without = rollout([submits()], arm=NO_PLAN)
    assert "planctl" in contents(with_plan[0])[0]
    assert "planctl" not in json.dumps(without[0])
    assert contents(with_plan[0])[1] == contents(without[0])[1]


def test_the_tool_list_is_kept_once_under_the_hash_that_calls_name():
    outcome, requests = rollout([says("", bash("ls")), submits()])
    ((digest, text),) = outcome.tools.items()
    assert {c.tools_sha256 for c in outcome.calls} == {digest}
    assert digest == text_sha256(text)
    assert json.loads(text) == requests[0]["tools"]


def test_request_seeds_follow_from_seed_instance_kind_and_step_alone():
    _, requests = rollout([says("", bash("ls")), submits()], seed=3)
    assert [r["seed"] for r in requests] == [
        request_seed(3, "toy__pair-1", "step", 1),
        request_seed(3, "toy__pair-1", "step", 2),
    ]


def test_every_request_carries_the_runs_salt():
    _, requests = rollout([says("", bash("ls")), submits()])
    assert {r["cache_salt"] for r in requests} == {SALT}


def test_a_step_call_leaves_the_choice_of_tool_to_the_model():
    _, requests = rollout([says("", bash("ls")), submits()])
    assert all("tool_choice" not in r for r in requests)


def test_parallel_calls_are_switched_off_by_the_agents_configuration():
    _, requests = rollout([submits()], agent=agent_spec(parallel_tool_calls=False))
    assert requests[0]["parallel_tool_calls"] is False


# --- turns ---------------------------------------------------------------------------------------
def test_the_calls_of_one_answer_are_carried_out_in_order():
    sandbox = EchoSandbox()
    outcome, requests = rollout(
        [
            says(
                "", planctl("set", steps=["a"]), bash("one"), planctl("start", step=1), bash("two")
            ),
            submits(),
        ],
        sandbox=sandbox,
    )
    assert sandbox.commands[:2] == ["one", "two"]
    results = requests[1]["messages"][3:]
    ids = [c["id"] for c in requests[1]["messages"][2]["tool_calls"]]
    assert [m["tool_call_id"] for m in results] == ids
    assert [m.tool for m in outcome.messages[3:7]] == ["planctl", "bash", "planctl", "bash"]
    assert [e.message_index for e in outcome.plan_events if e.plan_step == 1] == [3, 5]


def test_a_submission_in_the_middle_of_a_batch_keeps_the_other_outputs():
    sandbox = EchoSandbox(patch="diff\n")
    outcome, _ = rollout(
        [
            says(
                "",
                bash("before"),
                bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"),
                bash("after"),
            )
        ],
        sandbox=sandbox,
    )
    assert outcome.patch == "diff\n"
    assert "after" not in sandbox.commands
    before, submission, after = outcome.messages[3:]
    assert "before" in before.content
    assert "diff" in submission.content
    assert (after.content, after.returncode) == (
        "Not executed: the task was submitted before this.",
        None,
    )


def test_a_sentinel_of_a_command_that_failed_submits_nothing():
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat nothing"
    failed = CommandResult(output="COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\nno file\n", returncode=1)
    outcome, _ = rollout([says("", bash(command)), submits()], results={command: failed})
    assert outcome.failure_class is FailureClass.OK
    assert len(outcome.calls) == 2


def test_an_output_is_kept_raw_and_shown_elided_by_a_recorded_edit():
    raw = "x" * 30_000
    outcome, requests = rollout([says("", bash("cat x")), submits()], results={"cat x": raw})
    assert raw in outcome.messages[3].content
    assert len(contents(requests[1])[3]) < 11_000
    (edit,) = outcome.calls[1].edits
    assert (edit.message_index, edit.reason) == (3, "elide")


def test_a_timed_out_command_says_so():
    timed_out = CommandResult(output="so far\n", returncode=-1, timed_out=True, dropped_bytes=5)
    outcome, _ = rollout([says("", bash("sleep")), submits()], results={"sleep": timed_out})
    message = outcome.messages[3]
    assert "was stopped" in message.content
    assert "so far" in message.content
    assert (message.returncode, message.dropped_bytes) == (-1, 5)


def test_an_illegal_plan_move_is_an_observation_and_no_plan_event():
    outcome, _ = rollout([says("", planctl("start", step=3)), submits()])
    assert outcome.messages[3].returncode == 1
    assert "Allowed now" in outcome.messages[3].content
    assert outcome.plan_events == ()


def test_pruning_outside_a_cleanup_turn_is_an_error_observation():
    outcome, requests = rollout(
        [says("", bash("ls"), call("prune_observations", ids=[1])), submits()], arm=PRUNE
    )
    result = outcome.messages[4]
    assert (result.tool, result.returncode) == ("prune_observations", 1)
    assert "can only be used when you are asked" in result.content
    assert "ls" in contents(requests[1])[3]


def test_an_arm_may_let_its_tool_act_in_ordinary_turns():
    anytime = ArmSpec(name="anytime", policy=DiscardAnytime())
    outcome, _ = rollout([says("", call("prune_observations", ids=[1])), submits()], arm=anytime)
    assert "Outputs named for removal: 1." in outcome.messages[3].content
    assert outcome.messages[3].returncode == 0


def test_an_arm_adds_its_sentence_to_the_system_message_after_the_plan():
    sentence = "Lines that were left out are marked as (filtered N lines)."
    plain, said = (
        rollout([submits()], arm=ArmSpec(name="a", policy=FullHistory(), plan=plan, **more))[1][0]
        for plan, more in ((True, {}), (True, {"instructions": sentence}))
    )
    assert contents(said)[0] == f"{contents(plain)[0].rstrip()}\n\n{sentence}"
    bare = ArmSpec(name="a", policy=FullHistory(), plan=False, instructions=sentence)
    system = contents(rollout([submits()], arm=bare)[1][0])[0]
    assert system.endswith(f"\n\n{sentence}")
    assert "planctl" not in system


# --- format errors -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (says("Just words."), "no tool call"),
        (says("", call("launch_missiles")), "no tool called"),
        (says("", call("bash", cmd="ls")), "needs the argument"),
        (says("", call("bash", command=["ls"])), "needs the argument"),
        (
            says("", {"type": "function", "function": {"name": "bash", "arguments": '{"comm'}}),
            "not valid JSON",
        ),
        (
            says("", {"type": "function", "function": {"name": "planctl", "arguments": "[1]"}}),
            "no JSON object",
        ),
        (says("I think and th", finish_reason="length"), "cut off"),
    ],
)
def test_an_unusable_answer_is_told_in_a_user_message_and_never_shown_again(bad, why):
    outcome, requests = rollout([bad, submits()])
    assert [m["role"] for m in requests[1]["messages"]] == ["system", "user", "user"]
    assert why in contents(requests[1])[2]
    assert not outcome.messages[2].is_observation
    paid = outcome.calls[0]
    assert (paid.kind, paid.step_index) == ("step", 1)
    assert paid.answered
    assert paid.error.startswith("format: ")
    assert paid.reply == bad.message["content"]
    assert len(paid.reply_tool_calls) == len(bad.message.get("tool_calls", []))
    assert outcome.calls[1].step_index == 2


def test_an_unusable_answer_keeps_its_reasoning_on_record():
    bad = says("I look.", reasoning='<tool_call>{"name": "bash"}</tool_call>')
    outcome, _ = rollout([bad, submits()])
    assert outcome.calls[0].reply_reasoning == bad.message["reasoning"]


def test_one_bad_call_of_several_stops_all_of_them():
    sandbox = EchoSandbox()
    rollout([says("", bash("rm x"), call("nothing")), submits()], sandbox=sandbox)
    assert "rm x" not in sandbox.commands


def test_format_errors_in_a_row_end_the_run():
    outcome, _ = rollout([says("a"), says("b"), says("c")])
    assert outcome.failure_class is FailureClass.LIMIT_FORMAT
    assert len(outcome.calls) == 3


def test_a_clean_step_makes_format_errors_count_from_zero():
    script = [says("a"), says("b"), says("", bash("ls")), says("c"), says("d"), submits()]
    outcome, _ = rollout(script)
    assert outcome.failure_class is FailureClass.OK


# --- reasoning that the template drops -----------------------------------------------------------
def test_a_format_error_costs_the_reasoning_before_it_where_templates_drop_it():
    script = [
        says("", bash("ls"), reasoning="one two three"),
        says("oops"),
        says("", bash("ls"), reasoning="four five"),
        submits(),
    ]
    for rules, dropped in (("keep_reasoning", 0), ("drop_after_user", 3), ("no_reasoning", 5)):
        outcome, _ = rollout(script, model=model_spec(template_rules=rules))
        assert outcome.template_dropped_tokens == dropped


def test_times_and_counts_are_known_at_the_end():
    outcome, _ = rollout([says("", bash("ls")), submits()])
    assert outcome.token_counter == "words"
    assert outcome.wall_s == outcome.finished_at - outcome.started_at
    assert outcome.tool_s == 2.0
    assert outcome.messages[1].n_tokens == len(outcome.messages[1].content.split())


@pytest.mark.parametrize("raw", ["out", "", "<output>\n</output>", "0", "  spaced\r\n"])
def test_the_raw_output_stands_beside_what_the_template_made_of_it(raw: str):
    outcome, _ = rollout(
        [says("", bash("cat f"), planctl("show")), submits()], results={"cat f": raw}
    )
    output, plan = outcome.messages[3:5]
    assert output.output == raw
    assert output.frame == ("<returncode>0</returncode>\n<output>\n", "</output>")
    assert plan.output == plan.content


def test_an_output_that_the_template_changes_is_kept_apart():
    agent = agent_spec(observation_template="> {{ output.output | trim }}")
    outcome, _ = rollout(
        [says("", bash("cat f")), submits()], agent=agent, results={"cat f": " a\n"}
    )
    message = outcome.messages[3]
    assert (message.content, message.output, message.output_start) == ("> a", " a\n", None)
    (row,) = [
        r for r in message_rows(full_run(messages=outcome.messages)) if r["message_index"] == 3
    ]
    assert (row["output"], row.get("output_start")) == (" a\n", None)
