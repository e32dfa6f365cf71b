"""What a session keeps of what a scaffold says: messages, their tokens, raw outputs."""

import sys

from pipeline.agent.caller import RequestIdentity
from pipeline.agent.session import ArmParts, ServedModel, Session, Watch
from pipeline.agent.tool import Action, ToolResult
from pipeline.arms.full_history import FullHistoryPolicy
from pipeline.host.process import run_command
from pipeline.protocols import ChatReply, CommandResult
from pipeline.serving.client import HttpCompleter
from pipeline.views.policy import RequestedToolCall
from tests.agent.rollouts import agent_spec, model_spec
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


def session() -> Session:
    """A session that asks nobody."""
    model = model_spec()
    return Session(
        agent=agent_spec(),
        model=ServedModel(
            spec=model,
            completer=HttpCompleter(model, "http://127.0.0.1:9/v1"),
            counter=WordCounter(),
            identity=RequestIdentity(seed=0, instance_id="i", cache_salt="s"),
        ),
        arm=ArmParts(policy=FullHistoryPolicy(), plan=False),
        tools=[],
        elide=lambda _message: None,
        upload=lambda _data, _path: None,
        watch=Watch(now=lambda: 0.0),
    )


def observed(action: Action, content: str, result: ToolResult | None, start: int | None = None):
    run = session()
    run.observe(action, content, result, output_start=start)
    return run.trajectory.messages[-1]


def taken(reply: ChatReply):
    run = session()
    run.take(reply)
    return run.trajectory.messages[-1]


def test_an_answer_keeps_its_text_reasoning_and_calls():
    kept = taken(REPLY)
    assert (kept.role, kept.content, kept.reasoning) == ("assistant", "Look.", "Where is it?")
    assert [c.name for c in kept.tool_calls] == ["bash", "planctl"]
    assert kept.tool_calls[1].arguments == "{}", "chat templates parse the arguments again"
    assert not kept.is_observation


def test_tokens_of_text_and_calls_are_counted_apart_from_reasoning():
    kept = taken(REPLY)
    assert (kept.n_tokens, kept.reasoning_tokens) == (1 + 1 + 2 + 1 + 1, 3)


def test_a_result_is_a_tool_message_or_in_text_mode_a_users():
    ran = CommandResult(output="a\nb\n", returncode=2, dropped_bytes=7)
    result = ToolResult(output=ran.output, returncode=2, command=ran)
    kept = observed(LS, "a\nb\n", result)
    assert (kept.role, kept.tool_call_id, kept.tool, kept.command) == ("tool", "a", "bash", "ls")
    assert (kept.returncode, kept.dropped_bytes, kept.n_lines) == (2, 7, 2)
    in_text = observed(Action(tool="bash", command="ls"), "a", ToolResult(output="a"))
    assert (in_text.role, in_text.tool_call_id, in_text.is_prunable) == ("user", None, True)


def test_a_result_keeps_the_raw_output_and_where_it_stands_in_the_text():
    kept = observed(LS, "$ out <", ToolResult(output="out"), 2)
    assert (kept.output, kept.printed, kept.frame) == ("out", "out", ("$ ", " <"))
    skipped = observed(LS, "not run", None)
    assert (skipped.output, skipped.printed, skipped.frame) == (None, "not run", ("", ""))
    assert skipped.returncode is None


def test_importing_mini_prints_nothing_makes_nothing_and_leaves_litellm_out(tmp_path):
    program = (
        "import sys; import pipeline.agent.rollout; "
        "import pipeline.agent.mini.scaffold as m; "
        "assert 'minisweagent' not in sys.modules; m.prepare_import(); "
        "import pipeline.agent.mini.loop; "
        "assert 'minisweagent' in sys.modules; "
        "assert not {'litellm', 'openai', 'torch', 'swebench'} & set(sys.modules)"
    )
    result = run_command(
        [sys.executable, "-c", program], env={"HOME": str(tmp_path)}, timeout_s=120.0
    )
    assert (result.returncode, result.text) == (0, "")
    assert list(tmp_path.iterdir()) == []
