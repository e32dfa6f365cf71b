"""Which trajectory a list belongs to, and what is said of one that did not just grow."""

import threading
from pathlib import Path

import pytest

from tests.proxying.running import (
    SYSTEM,
    TASK,
    assistant,
    extra,
    rebuilt,
    result,
    running,
    runs,
    the_run,
    user,
)
from tests.proxying.upstream import bash_call, reply, scripted, whole

LS = bash_call("c1", "ls")
CAT = bash_call("c2", "cat a.py")
FIRST = [*TASK, assistant(None, LS), result("c1", "a.py")]
SECOND = [*FIRST, assistant(None, CAT), result("c2", "x = 1")]
ANSWERS = (reply(None, calls=[("c1", "ls")]), reply(None, calls=[("c2", "cat a.py")]), reply())


@pytest.fixture
def upstream():
    with scripted(*([answer] for answer in ANSWERS)) as server:
        yield server


def test_a_list_that_grows_is_one_trajectory(upstream, tmp_path: Path):
    with running(tmp_path, upstream.base_url) as proxy:
        for messages in (TASK, FIRST, SECOND):
            assert proxy.ask(messages).status == 200
    run = the_run(tmp_path)
    assert [m["role"] for m in run.messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    assert [m["step_index"] for m in run.messages] == [0, 0, 1, 1, 2, 2, 3]
    assert [(c["step_index"], c["message_count"]) for c in run.calls] == [(1, 2), (2, 4), (3, 6)]
    assert [m["command"] for m in run.messages if m["tool"]] == ["ls", "cat a.py"]
    assert run.messages[-1]["content"] == "Fine.", "the last answer came back in no list"
    assert not any(call["reply"] for call in run.calls)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ([*TASK, assistant(None, LS), result("c1", "b.py"), user("Go on.")], "message 3"),
        (SECOND[:4] + SECOND[5:], "message 4"),
        (FIRST, "had sent"),
        (FIRST[:3], "had sent"),
    ],
    ids=["edited", "cut", "repeated", "shortened"],
)
def test_a_list_that_did_not_just_grow_starts_a_new_trajectory_and_says_what_it_did(
    upstream, tmp_path: Path, changed: list, says: str
):
    with running(tmp_path, upstream.base_url) as proxy:
        for messages in (TASK, FIRST, SECOND, changed):
            assert proxy.ask(messages).status == 200
    before, after = runs(tmp_path)
    assert extra(after)["continues"] == before.run["run_id"]
    assert says in extra(after)["notes"][0]
    assert says in "\n".join(proxy.said)
    assert [len(before.calls), len(after.calls)] == [3, 1]
    assert upstream.chats[-1].json["messages"] == changed
    assert [m["content"] for m in after.messages[: len(changed)]] == [
        m["content"] or "" for m in changed
    ]


def test_another_task_with_the_same_system_prompt_is_plainly_another_run(upstream, tmp_path: Path):
    with running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(TASK)
        proxy.ask([SYSTEM, user("Repair the printer.")])
    first, second = runs(tmp_path)
    assert first.run["instance_id"] != second.run["instance_id"]
    assert "notes" not in extra(second)


def test_a_request_that_failed_and_is_sent_again_stays_in_its_trajectory(tmp_path: Path):
    """And the arm does not decide twice: what it asked once is not asked again."""
    busy = whole(b'{"error": {"message": "overloaded"}}', "503 Service Unavailable")
    with scripted([busy], [busy], [reply()]) as upstream, running(tmp_path, upstream.base_url) as p:
        assert [p.ask(TASK).status for _ in range(3)] == [503, 503, 200]
    run = the_run(tmp_path)
    assert [c["error"] and c["error"][:8] for c in run.calls] == ["HTTP 503", "HTTP 503", None]
    assert run.run["n_steps"] == 1
    assert run.run["input_tokens"] == 100


def test_an_answer_that_the_client_did_not_take_stays_on_the_record(upstream, tmp_path: Path):
    """As agents do with a reply in the wrong form: they say so, and the reply enters no list."""
    with running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(TASK)
        proxy.ask([*TASK, user("Use the tool.")])
    run = the_run(tmp_path)
    assert [m["role"] for m in run.messages] == ["system", "user", "user", "assistant"]
    assert '"ls' in run.calls[0]["reply_tool_calls"].replace("\\", "")
    assert run.calls[1]["reply_tool_calls"] is None


def test_a_named_instance_is_the_runs_and_keeps_equal_lists_apart(upstream, tmp_path: Path):
    with running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(TASK, instance="astropy__astropy-1")
        proxy.ask(TASK, instance="astropy__astropy-2")
        proxy.ask(FIRST, instance="astropy__astropy-1")
    first, second = runs(tmp_path)
    assert (first.run["instance_id"], len(first.calls)) == ("astropy__astropy-1", 2)
    assert (second.run["instance_id"], len(second.calls)) == ("astropy__astropy-2", 1)
    assert first.run["repo"] == "astropy/astropy"


def test_moved_cache_marks_and_dropped_reasoning_are_no_other_history(tmp_path: Path):
    marked = {"type": "text", "text": "a.py", "cache_control": {"type": "ephemeral"}}
    first = [*TASK, assistant(None, LS, reasoning_content="Hm."), result("c1", [marked])]
    second = [*TASK, assistant(None, LS), result("c1", "a.py"), assistant("Ok."), user("More.")]
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(first)
        proxy.ask(second)
    run = the_run(tmp_path)
    assert len(run.calls) == 2
    assert rebuilt(tmp_path, run, 0)[2]["reasoning"] == "Hm."
    assert "reasoning" not in rebuilt(tmp_path, run, 1)[2], "the client no longer sent it"


def test_a_second_request_while_the_first_is_answered_is_another_run(tmp_path: Path):
    with (
        scripted([b"HOLD", reply("One.")], [reply("Two.")]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        held = threading.Thread(target=lambda: proxy.ask(TASK))
        held.start()
        upstream.wait_for_chats(1)
        assert proxy.ask(TASK).message["content"] == "Two."
        upstream.hold.set()
        held.join()
        proxy.ask([*TASK, assistant("Two."), user("Go on.")])
        proxy.ask([*TASK, assistant("One."), user("Go on.")])
    one, two = runs(tmp_path)
    assert [m["content"] for m in one.messages[2:4]] == ["One.", "Go on."]
    assert [m["content"] for m in two.messages[2:4]] == ["Two.", "Go on."]


def test_a_quiet_conversation_becomes_a_run_while_the_proxy_goes_on(upstream, tmp_path: Path):
    with running(tmp_path, upstream.base_url, idle_s=0.0) as proxy:
        proxy.ask(TASK)
        proxy.proxy._conversations.wait_idle(5)
        proxy.proxy._tend()
        assert any("written" in line for line in proxy.said)
        proxy.ask(FIRST)
    first, second = runs(tmp_path)
    assert extra(second)["continues"] == first.run["run_id"]
