"""mini-SWE-agent with its own published prompts: what the model reads is what its makers wrote."""

from pipeline.arms.full_history import FullHistory
from pipeline.planning.config import sweep_spec
from pipeline.spec.arm import ArmSpec
from tests.agent.rollouts import ROW, rollout
from tests.fakes import bash, says, submits

NO_PLAN = ArmSpec(name="no_plan", policy=FullHistory(), plan=False)


def published():
    (agent,) = sweep_spec(["+sweep=demo", "agent=mini_published"]).agents.values()
    return agent


def told(*script, results=None):
    return rollout([*script, submits()], arm=NO_PLAN, agent=published(), results=results)[1]


def test_system_and_task_are_the_published_ones():
    system, task = told()[0]["messages"]
    assert system["content"].startswith("You are a helpful assistant that can interact")
    assert "planctl" not in system["content"]
    assert f"following PR description:\n{ROW['problem_statement']}" in task["content"]
    assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in task["content"]


def test_a_long_output_is_shortened_by_the_published_template_alone():
    long = "0123456789\n" * 2000
    last = told(says("", bash("cat big")), results={"cat big": long})[1]["messages"][-1]
    assert last["content"].count("characters elided") == 1
    assert "<elided_chars>\n12000 characters elided\n</elided_chars>" in last["content"]
    assert "too long to show" not in last["content"]


def test_an_unusable_call_is_answered_in_the_published_words():
    broken = {"type": "function", "function": {"name": "bash", "arguments": "{"}}
    for reason in ("tool_calls", "stop"):
        last = told(says("", broken, finish_reason=reason))[1]["messages"][-1]
        assert "Tool call error:" in last["content"]
    cut = told(says("thinking", finish_reason="length"))[1]["messages"][-1]
    assert "reached the output token limit" in cut["content"]
