"""Models without tool calls: actions are blocks, results are user messages."""

from pipeline.records.failure import FailureClass
from tests.agent.rollouts import PRUNE, agent_spec, contents, model_spec, rebuilt, rollout
from tests.fakes import says

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"


def block(*lines: str) -> str:
    return "```mswea_bash_command\n" + "\n".join(lines) + "\n```"


def run(*answers: str, **more):
    script = [says(text) for text in (*answers, block(SUBMIT))]
    return rollout(script, agent=agent_spec("mini_text"), model=model_spec(mode="text"), **more)


def test_a_run_needs_no_tools():
    outcome, requests = run(block("planctl set a | b", "planctl start 1", "ls"))
    assert outcome.failure_class is FailureClass.OK
    assert all("tools" not in r for r in requests)
    assert [m["role"] for m in requests[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
        "user",
        "user",
    ]
    assert contents(requests[1])[4] == "Plan, 0 of 2 done:\n[>] 1. a\n[ ] 2. b"
    assert [(m.tool, m.command) for m in outcome.messages[3:6]] == [
        ("planctl", "planctl set a | b"),
        ("planctl", "planctl start 1"),
        ("bash", "ls"),
    ]
    assert [r["messages"] for r in requests] == rebuilt(outcome)


def test_an_answer_without_a_block_is_told_the_form():
    _, requests = run("I will look around.")
    assert "```mswea_bash_command" in contents(requests[1])[2]


def test_several_blocks_are_one_turn():
    outcome, _ = run(block("one") + "\nand\n" + block("two"))
    assert [m.content for m in outcome.messages if m.step_index == 1][1:] == [
        "<returncode>0</returncode>\n<output>\none\n</output>",
        "<returncode>0</returncode>\n<output>\ntwo\n</output>",
    ]


def test_pruning_outside_a_cleanup_is_an_error_there_too():
    script = [says(block("prune_observations 1")), says(block(SUBMIT))]
    outcome, _ = rollout(
        script, arm=PRUNE, agent=agent_spec("mini_text"), model=model_spec(mode="text")
    )
    assert outcome.messages[3].returncode == 1


def test_results_as_user_messages_cost_the_reasoning_where_templates_drop_it():
    script = [says(block("ls"), reasoning="one two"), says(block(SUBMIT), reasoning="three")]
    outcome, _ = rollout(
        script,
        agent=agent_spec("mini_text"),
        model=model_spec(mode="text", template_rules="drop_after_user"),
    )
    assert outcome.template_dropped_tokens == 2
