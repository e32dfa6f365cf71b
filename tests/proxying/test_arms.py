"""What arms do to a client's requests, and which arms a proxy refuses."""

import json
from pathlib import Path

import pytest

from pipeline import proxy as command
from pipeline.arms.line_pruning import LinePruning
from pipeline.proxying.proxy import ProxyError
from pipeline.proxying.refusals import refusal
from pipeline.records.failure import FailureClass
from pipeline.replay import CONF, chosen_arms
from pipeline.serving.tokens import SimTokens
from pipeline.spec.policies import policy_for
from tests.proxying.running import (
    KEY,
    TASK,
    assistant,
    rebuilt,
    result,
    running,
    the_run,
    user,
)
from tests.proxying.upstream import bash_call, reply, scripted, whole

MASK = "observation_mask[keep_last_turns=1]"
GONE = "Old environment output: (1 lines omitted)"


def turns(n: int, output: object = "a.py") -> list[dict]:
    """Return a task and `n` turns with one output each."""
    messages = list(TASK)
    for k in range(n):
        messages += [assistant(None, bash_call(f"c{k}", f"cat {k}.py")), result(f"c{k}", output)]
    return messages


def test_where_the_arm_changes_nothing_the_body_passes_byte_by_byte(tmp_path: Path):
    body = b'{"model":"m" ,  "messages": [{"role":"user","content":"\\u00e9 \\ud83d"}], "x": 1e400}'
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        assert proxy.client().send(body).status == 200
    assert upstream.chats[0].body == body


def test_an_arm_changes_the_messages_alone(tmp_path: Path):
    fields = {
        "temperature": 0.5,
        "tools": [{"type": "function"}],
        "metadata": {"a": [1]},
        "seed": 4,
    }
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, MASK) as proxy:
        proxy.ask(turns(2), **fields)
    sent = upstream.chats[0].json
    expected = turns(2)
    expected[3] = result("c0", GONE)
    assert sent == {"model": "sim", "messages": expected, **fields}
    run = the_run(tmp_path)
    assert [m["content"] or None for m in rebuilt(tmp_path, run, 0)] == [
        m["content"] for m in expected
    ]
    assert (run.calls[0]["temperature"], run.calls[0]["request_seed"]) == (0.5, 4)


def test_fields_of_messages_that_nobody_here_knows_pass(tmp_path: Path):
    messages = turns(2)
    messages[2] |= {"thinking_blocks": [{"signature": "s"}], "reasoning_content": "Hm."}
    messages[3] = result("c0", [{"type": "text", "text": "a", "cache_control": {"type": "e"}}])
    messages[3]["name"] = "bash"
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, MASK) as proxy:
        proxy.ask(messages)
    sent = upstream.chats[0].json["messages"]
    assert sent[2] == messages[2]
    assert sent[3] == {
        **messages[3],
        "content": [{"type": "text", "text": GONE, "cache_control": {"type": "e"}}],
    }


def test_reasoning_is_taken_out_under_all_its_names(tmp_path: Path):
    messages = turns(3)
    for message in messages:
        if message["role"] == "assistant":
            message |= {"reasoning_content": "Hm.", "thinking_blocks": [{"thinking": "Hm."}]}
    arm = "clear_thinking[keep_turns=1]"
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, arm) as proxy:
        proxy.ask(messages)
    sent = [m for m in upstream.chats[0].json["messages"] if m["role"] == "assistant"]
    assert [sorted(m.keys() - {"role", "content", "tool_calls"}) for m in sent] == [
        *([], []),
        ["reasoning_content", "thinking_blocks"],
    ]


def test_commands_are_cut_in_the_clients_own_tool_calls(tmp_path: Path):
    messages = [
        *TASK,
        assistant(
            None, {**bash_call("c0", "cat > a.py <<'E'\n" + "x = 1\n" * 99 + "E"), "index": 0}
        ),
        result("c0", ""),
        assistant(None, bash_call("c1", "cat a.py")),
        result("c1", "x = 1\n" * 99),
        assistant(None, bash_call("c2", "ls")),
        result("c2", "a.py"),
    ]
    arm = "supersede_writes"
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, arm) as proxy:
        proxy.ask(messages)
    call = upstream.chats[0].json["messages"][2]["tool_calls"][0]
    assert (call["id"], call["index"]) == ("c0", 0)
    assert len(json.loads(call["function"]["arguments"])["command"]) < 200


def test_in_text_mode_the_users_message_is_the_output(tmp_path: Path):
    messages = list(TASK)
    for k in range(2):
        messages += [assistant(f"Look.\n```bash\ncat {k}.py\n```"), user(f"<output>{k}</output>")]
    for text_actions, sent in ((True, GONE), (False, "<output>0</output>")):
        out = tmp_path / str(text_actions)
        with (
            scripted([reply()]) as upstream,
            running(out, upstream.base_url, MASK, text_actions=text_actions) as proxy,
        ):
            proxy.ask(messages)
        assert upstream.chats[0].json["messages"][3] == user(sent)
    run = the_run(tmp_path / "True")
    assert [m["command"] for m in run.messages if m["tool"]] == ["cat 0.py", "cat 1.py"]


SUMMARY = "llm_summary[summarise_turns=2,keep_last_turns=1]"


def test_what_an_arm_asks_goes_to_the_clients_model_with_the_clients_key(tmp_path: Path):
    with (
        scripted([reply("Summary.")], [reply("Step.")]) as upstream,
        running(tmp_path, upstream.base_url, SUMMARY) as proxy,
    ):
        answer = proxy.ask(
            turns(3), model="m", stream=True, tools=[{"type": "function"}], top_p=0.9
        )
    assert b"Step." in answer.body
    aside, step = upstream.chats
    assert aside.headers["authorization"] == f"Bearer {KEY}"
    assert (aside.json["model"], aside.json["top_p"]) == ("m", 0.9)
    assert "stream" not in aside.json
    assert "tools" not in aside.json
    assert any("Summary." in str(m["content"]) for m in step.json["messages"])
    run = the_run(tmp_path)
    assert [call["kind"] for call in run.calls] == ["summary", "step"]
    assert run.calls[0]["reply"] == "Summary."
    assert run.run["aux_input_tokens"] == 100
    assert rebuilt(tmp_path, run, 0) == aside.json["messages"]


def test_an_arms_question_that_fails_is_the_clients_error_and_is_not_paid_twice(tmp_path: Path):
    limit = whole(b'{"error": {"message": "slow down"}}', "429 Too Many Requests", retry_after="7")
    with (
        scripted([limit], [reply("Summary.")], [limit], [reply("Step.")]) as upstream,
        running(tmp_path, upstream.base_url, SUMMARY) as proxy,
    ):
        answers = [proxy.ask(turns(3)) for _ in range(3)]
    assert [a.status for a in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert len(upstream.chats) == 4, "the summary that had come was not asked for again"
    kinds = [(c["kind"], c["error"] is None) for c in the_run(tmp_path).calls]
    assert kinds == [("summary", False), ("summary", True), ("step", False), ("step", True)]


def test_a_question_that_does_not_fit_the_window_answers_nothing_and_the_step_is_made(
    tmp_path: Path,
):
    full = whole(b'{"error": {"code": "context_length_exceeded"}}', "400 Bad Request")
    with (
        scripted([full], [reply("Step.")]) as upstream,
        running(tmp_path, upstream.base_url, SUMMARY) as proxy,
    ):
        assert proxy.ask(turns(3)).message["content"] == "Step."
    assert the_run(tmp_path).run["failure_class"] == FailureClass.UNKNOWN_ENDING


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        ("plan_prune", "keep a plan"),
        ("prune_finished_step", "keep a plan"),
        ("every_k", "tools of its own"),
        ("discard_anytime", "tools of its own"),
        ("offload", "writes files"),
        ("swe_pruner", "question beside the command"),
        ("swe_pruner_pro", "scores from inside"),
        ("full_history[no_such=1]", "unknown key"),
    ],
)
def test_an_arm_that_a_view_is_not_enough_for_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arm: str, says: str
):
    words = ["--arm", arm, "--upstream", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "out")]
    assert command.main(words) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing was begun"


def accepted() -> list[str]:
    names = sorted(path.stem for path in (CONF / "arm").glob("*.yaml"))
    context = {"seed": 0, "count_tokens": SimTokens(), "context_length": 4000}
    arms = [(name, arm) for name in names for arm in chosen_arms([name])]
    return [
        *(
            name
            for name, arm in arms
            if not refusal(arm, policy_for(arm, **context))
            and not isinstance(arm.policy, LinePruning)
        ),
        "delete_both_turn50_delayed",
    ]


@pytest.mark.parametrize("arm", accepted())
def test_the_record_of_every_arm_is_what_the_upstream_was_sent(tmp_path: Path, arm: str):
    with (
        scripted([reply("Summary, or a step.")]) as upstream,
        running(tmp_path, upstream.base_url, arm, context_length=4000) as proxy,
    ):
        client, messages = proxy.client(), turns(35)
        for k in range(3, len(messages), 2):
            messages[k]["content"] = f"line of {k}\n" * 40
            assert client.ask(messages[: k + 1], max_tokens=50).status == 200
    run = the_run(tmp_path)
    assert len(run.calls) == len(upstream.chats) >= 35
    for index, asked in enumerate(upstream.chats):
        sent = [{**m, "content": m["content"] or ""} for m in asked.json["messages"]]
        assert rebuilt(tmp_path, run, index) == sent


def test_a_key_in_the_address_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    words = ["--arm", "full_history", "--out", str(tmp_path), "--upstream"]
    assert command.main([*words, "http://me:secret@127.0.0.1:9/v1"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_a_folder_that_holds_a_sweep_is_refused(tmp_path: Path):
    (tmp_path / "sweep.lock.yaml").write_text("")
    with pytest.raises(ProxyError, match="folder of its own"), running(tmp_path, "http://x/v1"):
        pass
