"""The arms agent_diet, context_edit, clear_thinking, offload, reuse_prune.

See docs/methods.md, Editing by rule.
"""

import json

import pytest

from pipeline.arms.offload import offload_path
from pipeline.views.policy import CallKind
from pipeline.views.trajectory import Part
from tests.context.arms import arm
from tests.context.driving import ran, removed_commands, shown
from tests.context.scripts import Act, Round, read, rounds, says, set_plan

LONG = 600


def long_reads(n: int, words: int = LONG) -> list[Round]:
    return rounds(*[read(f"{k}.py", words) for k in range(n)])


# --- agent_diet ----------------------------------------------------------------------------------
def test_diet_compresses_the_single_step_two_turns_back() -> None:
    result = ran(arm("agent_diet"), long_reads(4), says("short"))
    assert [d.message_index for d in result.trajectory.decisions] == [8, 10]
    assert {r.kind for r in result.requests} == {CallKind.PRUNE}
    assert removed_commands(result, "diet") == ["cat 0.py", "cat 1.py"]
    assert shown(result)[3] == "short"


def test_diet_leaves_steps_under_500_tokens() -> None:
    assert ran(arm("agent_diet"), long_reads(4, words=499)).standing == {}


@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [(600, 200, True), (600, 201, True), (600, 480, False), (600, 479, True), (3000, 2600, True),
     (3000, 2601, False), (3000, 2399, True)],
)  # fmt: skip
def test_diet_accepts_400_tokens_saved_or_less_than_80_percent(
    before: int, after: int, accepted: bool
) -> None:
    # Outputs of 3,000 words stay below the elision at 10,000 characters.
    script = rounds(Act(command="x", output="a " * before), read("b"), read("c"))
    result = ran(arm("agent_diet"), script, says("word " * after))
    rule = before - after >= 400 or after < 0.8 * before
    assert rule is accepted
    assert bool(result.edits("diet")) is accepted


def test_diet_at_random_keeps_a_quarter_of_the_tokens() -> None:
    script = rounds(Act(command="x", output="aa " * 2000), read("b"), read("c"))
    (edit,) = ran(arm("agent_diet_random"), script).edits("diet")
    assert edit.text.count("aa") == pytest.approx(500, abs=2)


def test_diet_may_delete() -> None:
    (edit, *_) = ran(arm("agent_diet_delete"), long_reads(3)).edits("diet")
    assert edit.text == "[Earlier command output omitted.]"


def test_diet_with_no_answer_changes_nothing() -> None:
    assert ran(arm("agent_diet"), long_reads(4), says("")).standing == {}


# --- context_edit, clear_thinking ----------------------------------------------------------------
def test_nothing_is_cleared_below_the_trigger() -> None:
    spec = arm("context_edit")
    assert (spec.policy.trigger_tokens, spec.policy.keep_tool_uses) == (100_000, 3)
    assert ran(spec, long_reads(10)).standing == {}


def test_past_the_trigger_all_but_the_newest_three_tool_results_are_cleared() -> None:
    result = ran(arm("context_edit", trigger_tokens=3000), long_reads(5))
    assert removed_commands(result, "clear") == ["cat 0.py", "cat 1.py"]
    assert [bool(m.new) for m in result.moments] == [False] * 5 + [True]


def test_clearing_is_not_applied_if_it_cannot_clear_enough() -> None:
    spec = arm("context_edit", trigger_tokens=3000, clear_at_least_tokens=1500)
    result = ran(spec, long_reads(6))
    assert [bool(m.new) for m in result.moments] == [False] * 6 + [True]
    assert len(result.edits("clear")) == 3


def test_excluded_tools_are_never_cleared() -> None:
    spec = arm("context_edit", trigger_tokens=3000, exclude_tools=["bash"])
    assert ran(spec, long_reads(8)).standing == {}


def test_tool_inputs_are_cleared_only_where_asked() -> None:
    kept = ran(arm("context_edit", trigger_tokens=3000), long_reads(6))
    assert {part for _, part in kept.standing} == {Part.CONTENT}
    spec = arm("context_edit", trigger_tokens=3000, clear_tool_inputs=True)
    calls = ran(spec, long_reads(6)).standing[2, Part.TOOL_CALLS]
    assert json.loads(calls.text)[0]["function"]["arguments"] == "{}"


def test_only_the_last_k_thinking_turns_keep_their_reasoning() -> None:
    script = [
        Round(acts=(read(f"{k}.py"),), reasoning="" if k == 4 else f"thought {k}") for k in range(5)
    ]
    for keep in (1, 2):
        result = ran(arm("clear_thinking", keep_turns=keep), script)
        gone = [result.trajectory.messages[i].reasoning for i, _ in result.standing]
        assert gone == [f"thought {k}" for k in range(4 - keep)]


# --- offload -------------------------------------------------------------------------------------
def test_a_long_output_moves_to_a_file_with_five_lines_head_and_tail() -> None:
    text = "\n".join(f"line {k}" for k in range(12_000))
    result = ran(arm("offload"), rounds(Act(command="cat big", output=text)))
    (edit,) = result.edits("offload")
    path = offload_path("/tmp/outputs", result.trajectory.messages[3])
    lines = edit.text.splitlines()
    assert lines[:5] == [f"line {k}" for k in range(5)]
    assert lines[-5:] == [f"line {k}" for k in range(11_995, 12_000)]
    assert path in edit.text


def test_an_output_of_20k_tokens_stays_where_it_is() -> None:
    text = "\n".join(f"line {k}" for k in range(10_000))
    assert ran(arm("offload"), rounds(Act(command="c", output=text))).edits("offload") == []


def test_a_long_output_of_few_lines_is_cut_within_them() -> None:
    result = ran(arm("offload", min_tokens=100), rounds(Act(command="c", output="word " * 200)))
    (edit,) = result.edits("offload")
    assert len(edit.text) < 1000


# --- reuse_prune ---------------------------------------------------------------------------------
def test_outputs_not_referred_to_for_k_turns_go() -> None:
    script = long_reads(14, words=20)
    result = ran(arm("reuse_prune"), script)
    assert removed_commands(result, "reuse") == ["cat 0.py", "cat 1.py", "cat 2.py", "cat 3.py"]


def test_a_mention_of_the_file_keeps_an_output() -> None:
    script = long_reads(14, words=20)
    script[8] = Round(acts=script[8].acts, text="So the bug is in 1.py.")
    result = ran(arm("reuse_prune"), script)
    assert "cat 1.py" not in removed_commands(result, "reuse")


def test_a_quoted_line_keeps_an_output() -> None:
    script = rounds(
        Act(command="./show | nl", output="    12\tdef a_rather_long_function_name():\n"),
        *[read(f"{k}.py") for k in range(12)],
    )
    script[9] = Round(acts=script[9].acts, text="See\ndef a_rather_long_function_name():")
    result = ran(arm("reuse_prune"), script)
    assert removed_commands(result, "reuse") == ["cat 0.py", "cat 1.py"]


def test_plan_results_are_no_outputs_here_either() -> None:
    script = [*rounds(set_plan(2)), *long_reads(12, words=20)]
    assert removed_commands(ran(arm("reuse_prune"), script), "reuse") == ["cat 0.py", "cat 1.py"]
