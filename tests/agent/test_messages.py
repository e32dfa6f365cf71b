"""Replies and results become mini's dicts, and mini's dicts the trajectory's messages."""

import sys

from pipeline.agent.actions import Action
from pipeline.agent.messages import assistant_dict, message_from_mini, observation_dict
from pipeline.host.process import run_command
from pipeline.protocols import ChatReply, RequestedToolCall
from tests.fakes import WordCounter

REPLY = ChatReply(
    content="Look.",
    reasoning="Where is it?",
    tool_calls=(
        RequestedToolCall(id="a", name="bash", arguments='{"command": "ls"}'),
        RequestedToolCall(id="b", name="planctl", arguments=""),
    ),
    finish_reason="tool_calls",
    prompt_tokens=1,
    completion_tokens=1,
    latency_s=0.0,
    started_at=0.0,
)
LS = Action(tool="bash", command="ls", tool_call_id="a")


def message(mini):
    return message_from_mini(mini, index=4, step_index=2, counter=WordCounter())


def test_an_answer_keeps_its_text_reasoning_and_calls():
    kept = message(assistant_dict(REPLY, [LS]))
    assert (kept.role, kept.content, kept.reasoning) == ("assistant", "Look.", "Where is it?")
    assert [c.name for c in kept.tool_calls] == ["bash", "planctl"]
    assert kept.tool_calls[1].arguments == "{}", "chat templates parse the arguments again"
    assert not kept.is_observation


def test_tokens_of_text_and_calls_are_counted_apart_from_reasoning():
    kept = message(assistant_dict(REPLY, [LS]))
    assert (kept.n_tokens, kept.reasoning_tokens) == (1 + 1 + 2 + 1 + 1, 3)


def test_the_actions_stand_where_minis_tools_look_for_them():
    mini = assistant_dict(REPLY, [LS])
    assert mini["extra"]["actions"] == [{"tool": "bash", "command": "ls", "tool_call_id": "a"}]


def test_a_result_is_a_tool_message_or_in_text_mode_a_users():
    kept = message(observation_dict(LS, "a\nb\n", returncode=2, dropped_bytes=7))
    assert (kept.role, kept.tool_call_id, kept.tool, kept.command) == ("tool", "a", "bash", "ls")
    assert (kept.returncode, kept.dropped_bytes, kept.n_lines) == (2, 7, 2)
    in_text = message(observation_dict(Action(tool="bash", command="ls"), "a", returncode=0))
    assert (in_text.role, in_text.tool_call_id, in_text.is_prunable) == ("user", None, True)


def test_importing_mini_prints_nothing_makes_nothing_and_leaves_litellm_out(tmp_path):
    program = (
        "import sys; import pipeline.agent.rollout as r; "
        "assert 'minisweagent' not in sys.modules; r.prepare_import(); "
        "import pipeline.agent.plan_agent; "
        "assert 'minisweagent' in sys.modules; "
        "assert not {'litellm', 'openai', 'torch', 'swebench'} & set(sys.modules)"
    )
    result = run_command(
        [sys.executable, "-c", program], env={"HOME": str(tmp_path)}, timeout_s=120.0
    )
    assert (result.returncode, result.text) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_result_keeps_the_raw_output_and_where_it_stands_in_the_text():
    result = observation_dict(LS, "$ out <", returncode=0, output="out", output_start=2)
    kept = message(result)
    assert (kept.output, kept.printed, kept.frame) == ("out", "out", ("$ ", " <"))
    unknown = message(observation_dict(LS, "not run", returncode=None))
    assert (unknown.output, unknown.printed, unknown.frame) == (None, "not run", ("", ""))
