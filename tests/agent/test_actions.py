"""What a reply asks for, in both forms of asking."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent.arm_tool import ArmTool
from pipeline.agent.bash_tool import BashTool
from pipeline.agent.mini.fences import actions_from_text
from pipeline.agent.plan_tool import PlanTool
from pipeline.agent.tool import BadReplyError, Tool, actions_from_calls
from pipeline.protocols import ChatReply
from pipeline.views import prune_tool
from pipeline.views.policy import RequestedToolCall
from pipeline.views.trajectory import Trajectory

OFFERED: tuple[Tool, ...] = (
    BashTool(timeout_s=1.0, asks_focus=False, whole_after=b"SUBMIT"),
    PlanTool(),
    ArmTool(prune_tool.prune_tool(), Trajectory()),
)
TOOLS = {tool.name: tool for tool in OFFERED}


def reply(content: str = "", *calls: tuple[str, str]) -> ChatReply:
    return ChatReply(
        content=content,
        tool_calls=tuple(
            RequestedToolCall(id=f"c{n}", name=name, arguments=arguments)
            for n, (name, arguments) in enumerate(calls)
        ),
        finish_reason="stop",
        prompt_tokens=1,
        completion_tokens=1,
        latency_s=0.0,
        started_at=0.0,
    )


def block(text: str) -> str:
    return f"```mswea_bash_command\n{text}\n```"


def in_text(content: str, *, several: bool = True) -> list[tuple[str, str]]:
    return [(a.tool, a.command) for a in actions_from_text(reply(content), TOOLS, several=several)]


def test_a_block_is_one_command():
    assert in_text(f"I look.\n{block('ls -a')}") == [("bash", "ls -a")]


def test_a_block_may_hold_a_whole_script():
    script = "cat > f <<'E'\nplanctl is a word here\nE\nls"
    assert in_text(block(script)) == [("bash", script)]


def test_plan_lines_at_either_end_of_a_block_are_actions_of_their_own():
    text = "planctl set a | b\nplanctl start 1\ncat f\ncat g\nplanctl complete read both"
    assert in_text(block(text)) == [
        ("planctl", "planctl set a | b"),
        ("planctl", "planctl start 1"),
        ("bash", "cat f\ncat g"),
        ("planctl", "planctl complete read both"),
    ]


def test_blocks_are_carried_out_in_order():
    assert in_text(f"{block('one')} and {block('two')}") == [("bash", "one"), ("bash", "two")]


@pytest.mark.parametrize(
    "content", ["no block", "```bash\nls\n```", block(""), block("  \n "), "```mswea_bash_command"]
)
def test_a_reply_without_a_command_is_refused(content):
    with pytest.raises(BadReplyError):
        in_text(content)


def test_several_blocks_are_refused_where_one_is_asked():
    with pytest.raises(BadReplyError, match="exactly one"):
        in_text(block("a") + block("b"), several=False)


def test_tool_calls_keep_their_ids_and_arguments():
    actions = actions_from_calls(
        reply("", ("planctl", '{"action": "show"}'), ("bash", '{"command": "ls"}')), TOOLS
    )
    assert [(a.tool, a.command, a.tool_call_id) for a in actions] == [
        ("planctl", '{"action": "show"}', "c0"),
        ("bash", "ls", "c1"),
    ]


def test_a_call_without_arguments_has_an_empty_object():
    (action,) = actions_from_calls(reply("", ("prune_observations", "")), TOOLS)
    assert action.command == "{}"


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_a_model_writes_is_actions_or_a_reason(name, text):
    for read in (
        lambda: actions_from_calls(reply("", (name, text), ("bash", text)), TOOLS),
        lambda: actions_from_text(reply(block(text) + text), TOOLS, several=True),
    ):
        with contextlib.suppress(BadReplyError):
            assert read()


def test_arguments_nested_too_deep_are_a_reason_and_no_crash():
    with pytest.raises(BadReplyError, match="not valid JSON"):
        actions_from_calls(reply("", ("bash", "[" * 100_000)), TOOLS)


def test_a_command_that_is_no_text_is_refused_by_its_tool():
    with pytest.raises(BadReplyError, match="needs the argument `command`"):
        actions_from_calls(reply("", ("bash", '{"command": ["ls"]}')), TOOLS)
