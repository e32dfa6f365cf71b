"""What passes between client and upstream, and what the record makes of it, however ugly it is."""

import gzip
import http.client
import json
import socket
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.records.failure import FailureClass
from pipeline.records.frames import frames_in
from tests.proxying.running import (
    KEY,
    TASK,
    Client,
    assistant,
    extra,
    rebuilt,
    result,
    running,
    runs,
    the_run,
    user,
)
from tests.proxying.upstream import (
    CLOSE,
    STREAM_HEAD,
    USAGE,
    bash_call,
    chunk,
    delta,
    event,
    reply,
    scripted,
    whole,
)

END = b"0\r\n\r\n"
DONE = event("[DONE]")


# --- errors of the upstream ----------------------------------------------------------------------
def test_an_error_of_the_upstream_is_passed_on_as_it_came(tmp_path: Path):
    body = b'{"error":  {"message": "slow down", "odd": [1]}}'
    answer = whole(body, "429 Too Many Requests", retry_after="17", x_request_id="r1")
    with scripted([answer]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        got = proxy.ask(TASK)
    assert (got.status, got.body) == (429, body)
    assert (got.headers["retry-after"], got.headers["x-request-id"]) == ("17", "r1")
    run = the_run(tmp_path)
    assert run.calls[0]["error"].startswith("HTTP 429")
    assert run.run["n_steps"] == 0
    assert run.run["failure_class"] == FailureClass.INFRA_SERVER


def test_a_full_window_is_the_runs_limit(tmp_path: Path):
    body = b'{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}'
    with (
        scripted([reply()], [whole(body, "400 Bad Request")]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        proxy.ask(TASK)
        assert proxy.ask([*TASK, assistant("Fine."), user("Go on.")]).body == body
    assert the_run(tmp_path).run["failure_class"] == FailureClass.LIMIT_CONTEXT


def test_an_upstream_that_is_not_there_is_a_bad_gateway(tmp_path: Path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with running(tmp_path, url) as proxy:
        got = proxy.ask(TASK)
    assert got.status == 502
    assert "cannot connect" in got.error
    assert "cannot connect" in the_run(tmp_path).calls[0]["error"]


@pytest.mark.parametrize(
    "pieces",
    [[CLOSE], [b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", CLOSE], [b"nonsense\r\n\r\n"]],
    ids=["before the head", "in the body", "no HTTP"],
)
def test_an_answer_that_breaks_off_is_a_bad_gateway(tmp_path: Path, pieces: list[bytes]):
    with (
        scripted(pieces, [reply()]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        client = proxy.client()
        assert client.ask(TASK).status == 502
        assert client.ask(TASK).status == 200, "and the client may ask again"
    assert len(the_run(tmp_path).calls) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [3]}',
        b'{"error": {"message": "behind the gateway"}}',
        b"\xff\xfe",
        b'{"choices": null, "usage": 3}',
    ],
)
def test_an_answer_that_is_no_completion_passes_and_is_an_error_on_the_record(
    tmp_path: Path, body: bytes
):
    with scripted([whole(body)]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        got = proxy.ask(TASK)
    assert (got.status, got.body) == (200, body)
    assert the_run(tmp_path).calls[0]["error"]


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [],
        7,
        {"prompt_tokens": "12"},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens_details": 4},
    ],
)
def test_a_usage_that_is_missing_or_odd_is_unknown_and_never_zero(tmp_path: Path, usage: object):
    with scripted([reply(usage=usage)]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        assert proxy.ask(TASK).status == 200
    run = the_run(tmp_path)
    assert run.calls[0]["prompt_tokens"] is None
    assert run.run["input_tokens"] is None
    assert run.run["n_steps"] == 1


@pytest.mark.parametrize(
    "message",
    [
        None,
        {},
        {"content": None},
        {"content": 5},
        {"content": ["a", {"text": 3}, None]},
        {"content": "\ud83d"},
        {"tool_calls": 3},
        {"tool_calls": [None, {}, {"function": 3}]},
        {"tool_calls": [{"id": 7, "function": {"name": None, "arguments": {"a": 1}}}]},
        {"content": "x", "reasoning": 5},
    ],
)
def test_a_reply_of_any_shape_is_recorded_and_passes(tmp_path: Path, message: object):
    choices = [{"message": message, "finish_reason": 3}]
    with (
        scripted([reply(choices=choices)]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.ask(TASK)
        assert got.json["choices"] == choices
        again = [*TASK, message if isinstance(message, dict) else {}, user("Go on.")]
        assert proxy.ask(again).status == 200
    assert sum(len(run.calls) for run in runs(tmp_path)) == 2


def test_several_choices_pass_and_the_first_is_recorded(tmp_path: Path):
    texts = ("One.", "Two.")
    choices = [{"index": i, "message": {"content": t}} for i, t in enumerate(texts)]
    with (
        scripted([reply(choices=choices)], [reply()]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        assert len(proxy.ask(TASK, n=2).json["choices"]) == 2
        proxy.ask([*TASK, assistant("Two."), user("Go on.")])
    run = the_run(tmp_path)
    assert [m["content"] for m in run.messages[2:]] == ["Two.", "Go on.", "Fine."]
    assert extra(run)["n_choices"] == 2


# --- streams -------------------------------------------------------------------------------------
CHUNKS = [
    delta(role="assistant", content=""),
    delta(reasoning_content="Hm "),
    delta(reasoning_content="so."),
    delta(content="Grüße, "),
    delta(content="日本."),
    delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "bash", "arguments": ""}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '{"command"'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": ': "ls"}'}}]),
    delta(finish_reason="tool_calls"),
]
USAGE_CHUNK = {"id": "c", "choices": [], "usage": USAGE}


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("n_bytes", [1, 7, 100_000])
def test_a_stream_passes_as_it_came_wherever_it_was_split(tmp_path: Path, end: bytes, n_bytes: int):
    stream = b": hello" + end + b"".join(event(c, end) for c in CHUNKS) + event("[DONE]", end)
    pieces = [chunk(stream[i : i + n_bytes]) for i in range(0, len(stream), n_bytes)]
    with (
        scripted([STREAM_HEAD, *pieces, END]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.ask(TASK, stream=True)
    assert got.body == stream
    run = the_run(tmp_path)
    said = run.messages[-1]
    assert (said["content"], said["reasoning"]) == ("Grüße, 日本.", "Hm so.")
    assert json.loads(said["tool_calls"])[0]["function"] == {
        "name": "bash",
        "arguments": '{"command": "ls"}',
    }
    assert run.calls[0]["finish_reason"] == "tool_calls"
    assert run.calls[0]["prompt_tokens"] is None, "nobody said what it cost"
    assert 0 <= run.calls[0]["ttft_s"] <= run.calls[0]["latency_s"]


@pytest.mark.parametrize(
    ("options", "passes"),
    [(None, False), ({"include_usage": False}, False), ({"include_usage": True}, True), (5, False)],
)
def test_what_a_stream_cost_is_asked_for_and_told_to_those_who_asked(
    tmp_path: Path, options: object, passes: bool
):
    pieces = [chunk(event(c)) for c in [*CHUNKS, USAGE_CHUNK]]
    asked = {} if options is None else {"stream_options": options}
    with (
        scripted([STREAM_HEAD, *pieces, chunk(DONE), END]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.ask(TASK, stream=True, **asked)
    assert upstream.chats[0].json["stream_options"]["include_usage"] is True
    assert (b"prompt_tokens" in got.body) is passes
    assert the_run(tmp_path).calls[0]["prompt_tokens"] == 321


def test_a_server_that_does_not_know_stream_options_is_asked_without(tmp_path: Path):
    refusal = whole(b'{"error": {"message": "unknown field stream_options"}}', "400 Bad Request")
    stream = [STREAM_HEAD, *(chunk(event(c)) for c in CHUNKS), chunk(DONE), END]
    with (
        scripted([refusal], stream) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        assert proxy.ask(TASK, stream=True).status == 200
        assert proxy.ask([*TASK, assistant("Hi."), user("Go on.")], stream=True).status == 200
    asked = ["stream_options" in request.json for request in upstream.chats]
    assert asked == [True, False, False]
    assert len(the_run(tmp_path).calls) == 2


@pytest.mark.parametrize("dies", ["hard", "between chunks"])
def test_an_upstream_that_dies_mid_stream_breaks_the_clients_stream_too(tmp_path: Path, dies: str):
    broken = [STREAM_HEAD, chunk(event(CHUNKS[3])), *([CLOSE] if dies == "hard" else [])]
    with (
        scripted(broken, [reply()]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.ask(TASK, stream=True)
        assert got.broken
        assert "Grüße".encode() in got.body
        assert proxy.ask(TASK).status == 200
    run = the_run(tmp_path)
    assert "broke off" in run.calls[0]["error"]
    assert run.calls[0]["reply"] == "Grüße, "
    assert run.calls[1]["error"] is None


def test_a_stream_that_ends_without_its_end_is_passed_so_and_noted(tmp_path: Path):
    """Servers that close the connection to end an answer cannot say that they died."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    with (
        scripted([head, event(CHUNKS[3]), b"data: {half"]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.ask(TASK, stream=True)
    assert not got.broken
    assert got.body == event(CHUNKS[3]) + b"data: {half"
    assert "ended before" in the_run(tmp_path).calls[0]["error"]


def test_an_error_event_in_a_stream_passes_and_is_recorded(tmp_path: Path):
    error = {"error": {"message": "the engine died"}}
    with (
        scripted([STREAM_HEAD, chunk(event(error)), chunk(DONE), END]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        assert b"engine died" in proxy.ask(TASK, stream=True).body
    assert "engine died" in the_run(tmp_path).calls[0]["error"]


def test_a_client_that_leaves_mid_stream_ends_the_upstreams_work(tmp_path: Path):
    pieces = [chunk(event(CHUNKS[3]))]
    many = [chunk(event(delta(content="x" * 4000)))] * 4000
    with (
        scripted([STREAM_HEAD, *pieces, b"HOLD", *many, chunk(DONE), END], [reply()]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        raw = socket.create_connection(("127.0.0.1", proxy.port))
        body = json.dumps({"model": "m", "messages": TASK, "stream": True}).encode()
        raw.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        assert b"200" in raw.recv(64)
        raw.close()
        upstream.hold.set()
        interrupted = [*TASK, assistant("Grüße"), user("Stop. Do this.")]
        assert proxy.ask(interrupted).status == 200
    run = the_run(tmp_path)
    assert "client left" in run.calls[0]["error"]
    assert [m["content"] for m in run.messages[2:4]] == ["Grüße", "Stop. Do this."]


def test_a_client_of_http_1_0_gets_a_stream_that_ends_with_the_connection(tmp_path: Path):
    stream = [chunk(event(c)) for c in CHUNKS]
    with (
        scripted([STREAM_HEAD, *stream, chunk(DONE), END]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as raw,
    ):
        body = json.dumps({"messages": TASK, "stream": True}).encode()
        raw.sendall(
            b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        got = b"".join(iter(lambda: raw.recv(65536), b""))
    assert got.partition(b"\r\n\r\n")[2] == b"".join(map(event, CHUNKS)) + DONE


# --- requests ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"{}", "`messages`"),
        (b'{"messages": []}', "`messages`"),
        (b'{"messages": {}}', "`messages`"),
        (b'{"messages": ["hello"]}', "list of objects"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_for_the_arm_could_not_be_applied(
    tmp_path: Path, body: bytes, says: str
):
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        client = proxy.client()
        got = client.send(body)
        assert (got.status, says in got.error) == (400, True)
        assert client.ask(TASK).status == 200, "the connection lives"
    assert len(upstream.chats) == 1


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": None, "content": None},
        {"role": 5, "content": {"a": 1}},
        {"role": "tool", "content": "no call asked for this"},
        {"role": "tool", "tool_call_id": 7, "content": ["text", {"type": "text", "text": "x"}]},
        {"role": "function", "name": "f", "content": "old style"},
        {"role": "assistant", "tool_calls": [{"id": None, "function": {"arguments": None}}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": "\ud83d half \x00"},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA"}}]},
        {"role": "developer", "content": "Be brief."},
    ],
)
@pytest.mark.parametrize("arm", ["full_history", "observation_mask[keep_last_turns=1]"])
def test_messages_of_any_shape_pass_and_enter_the_trajectory(
    tmp_path: Path, arm: str, message: dict
):
    messages = [*TASK, message, assistant("Ok."), result("c9", "late"), user("Go on.")]
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, arm) as proxy:
        assert proxy.ask(messages).status == 200
        assert proxy.ask([*messages, assistant("Fine."), user("And?")]).status == 200
    assert upstream.chats[0].json["messages"] == messages
    run = the_run(tmp_path)
    assert len(run.calls) == 2
    assert len(rebuilt(tmp_path, run, 0)) == len(messages)


def test_results_in_another_order_than_their_calls_find_them(tmp_path: Path):
    messages = [
        *TASK,
        assistant(None, bash_call("a", "ls"), bash_call("b", "pwd")),
        result("b", "/"),
        result("a", "a.py"),
    ]
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(messages)
    commands = [m["command"] for m in the_run(tmp_path).messages if m["tool"]]
    assert commands == ["pwd", "ls"]


def picture(data: str) -> list[dict]:
    url = {"url": f"data:image/png;base64,{data}"}
    return [{"type": "text", "text": "shot"}, {"type": "image_url", "image_url": url}]


def test_pictures_pass_tell_lists_apart_and_weigh_what_the_prompt_grew_by(tmp_path: Path):
    shot = [*TASK, assistant(None, bash_call("a", "shot")), result("a", picture("AAAA"))]
    other = [*shot[:-1], result("a", picture("BBBB"))]
    usages = [{"prompt_tokens": n, "completion_tokens": 5} for n in (20, 900, 900)]
    answers = [[reply("Ok.", usage=usage)] for usage in usages]
    with scripted(*answers) as upstream, running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(TASK)
        proxy.ask(shot)
        proxy.ask(other)
    assert upstream.chats[1].json["messages"] == shot
    first, second = runs(tmp_path)
    assert first.messages[3]["content"] == "shot"
    assert first.messages[3]["n_tokens"] > 800
    assert "message 3" in extra(second)["notes"][0]


def test_pictures_without_prompt_sizes_are_noted(tmp_path: Path):
    messages = [*TASK, assistant(None, bash_call("a", "shot")), result("a", picture("AAAA"))]
    with scripted([reply(usage=None)]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        proxy.ask(messages)
    assert "weight is unknown" in extra(the_run(tmp_path))["notes"][0]


def test_a_huge_body_passes(tmp_path: Path):
    messages = [*TASK, assistant(None, bash_call("a", "cat big")), result("a", "x y\n" * 1_000_000)]
    arm = "observation_mask[keep_last_turns=0]"
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url, arm) as proxy:
        assert proxy.ask(messages).status == 200
    assert len(upstream.chats[0].body) < 1000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: x", 400),
        (b"Content-Length: -5", 400),
        (b"Content-Length: 999999999999", 413),
        (b"Transfer-Encoding: gzip", 501),
        (b"Transfer-Encoding: chunked\r\n\r\nzz", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n-5", 400),
        (b"Content-Encoding: gzip", 415),
    ],
)
def test_a_body_that_cannot_be_had_is_refused_in_words(tmp_path: Path, head: bytes, status: int):
    with (
        scripted([reply()]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as raw,
    ):
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert response.status == status
        assert b"planprune proxy: " in response.read()
    assert not upstream.chats


def test_a_chunked_request_is_read(tmp_path: Path):
    body = json.dumps({"model": "m", "messages": TASK}).encode()
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        # A body of unknown length goes out in chunks.
        assert proxy.client().send(iter([body[:9], body[9:]])).status == 200
    assert upstream.chats[0].body == body


def test_many_requests_go_over_one_connection(tmp_path: Path):
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        client = Client(proxy.port)
        messages = list(TASK)
        for _ in range(30):
            assert client.ask(messages).status == 200
            messages += [assistant("Fine."), user("Go on.")]
        assert client.connection.sock is not None
    assert len(the_run(tmp_path).calls) == 30


def test_many_clients_at_once_keep_to_their_own_runs(tmp_path: Path):
    def work(number: int, port: int) -> None:
        client, messages = Client(port), [user(f"Task {number}.")]
        for step in range(5):
            client.ask(messages)
            messages += [assistant("Fine."), user(f"{number}/{step}")]

    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        threads = [threading.Thread(target=work, args=(n, proxy.port)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = runs(tmp_path)
    assert sorted(run.messages[0]["content"] for run in found) == sorted(
        f"Task {n}." for n in range(16)
    )
    assert {len(run.calls) for run in found} == {5}
    assert not any("notes" in extra(run) for run in found)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/completions", "nowhere"])
def test_another_interface_is_refused_since_no_arm_would_be_applied(tmp_path: Path, path: str):
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        got = proxy.client().send(b"{}", path=path)
    assert got.status == 501
    assert "chat completions only" in got.error
    assert [r.path for r in upstream.received if "models" not in r.path] == []


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/as/x-1/v1/models"])
def test_other_requests_pass(tmp_path: Path, path: str):
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        got = proxy.client().send(b"", path=path, method="GET")
    assert got.json == {"data": []}
    assert upstream.received[-1].path == "/v1/models"


def test_an_answer_that_is_packed_all_the_same_passes_and_is_unknown(tmp_path: Path):
    packed = gzip.compress(b"{}")
    with (
        scripted([whole(packed, content_encoding="gzip")]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        got = proxy.client().send(
            json.dumps({"messages": TASK}).encode(), headers={"Accept-Encoding": "gzip"}
        )
    assert got.body == packed
    assert got.headers["content-encoding"] == "gzip"
    assert upstream.chats[0].headers["accept-encoding"] == "identity"
    assert the_run(tmp_path).calls[0]["error"]


# --- keys ----------------------------------------------------------------------------------------
def test_the_clients_key_reaches_the_upstream_and_no_file_or_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Upstreams repeat a wrong key in what they answer."""
    body = f'{{"error": {{"message": "Incorrect API key: {KEY}"}}}}'.encode()
    with (
        scripted([whole(body, "401 Unauthorized")]) as upstream,
        running(tmp_path, upstream.base_url) as proxy,
    ):
        assert proxy.ask(TASK).body == body
        proxy.client().send(
            b"{}", path=f"/v1/other?key={KEY}", headers={"x-api-key": KEY, "Cookie": f"s={KEY}"}
        )
        said = "\n".join(proxy.said)
    assert upstream.chats[0].headers["authorization"] == f"Bearer {KEY}"
    assert "(key)" in the_run(tmp_path).calls[0]["error"]
    check_is_nowhere(KEY, tmp_path)
    captured = capfd.readouterr()
    assert KEY not in said + captured.out + captured.err


def check_is_nowhere(key: str, out: Path) -> None:
    for path in out.rglob("*"):
        if path.suffix == ".journal":
            assert not any(key.encode() in frame.body() for frame in frames_in(path))
        if path.suffix == ".parquet":
            assert key not in str(pq.read_table(path).to_pylist())
        if path.is_file():
            assert key.encode() not in path.read_bytes()


@pytest.mark.parametrize("key", [KEY, 'with-"quotes"-and-\\-in-it'])
def test_a_key_that_the_agent_printed_reaches_the_model_and_no_record(tmp_path: Path, key: str):
    messages = [
        *TASK,
        assistant(f"I call with {key}.", bash_call("a", f"echo {key}")),
        result("a", f"OPENAI_API_KEY={key}"),
    ]
    answers = [reply(f"It is {key}.", calls=[("b", f"curl -H {key}")])]
    with scripted(answers) as upstream, running(tmp_path, upstream.base_url) as proxy:
        body = json.dumps({"messages": messages}).encode()
        proxy.client().send(body, headers={"Authorization": f"Bearer {key}"})
        check_is_nowhere(key, tmp_path / "spool")
    assert upstream.chats[0].body == body
    run = the_run(tmp_path)
    assert run.messages[3]["content"] == "OPENAI_API_KEY=(key)"
    assert run.messages[4]["content"] == "It is (key)."
    assert "echo (key)" in run.messages[2]["tool_calls"]
    check_is_nowhere(key, tmp_path)


def test_a_dummy_key_is_a_word_like_any_other(tmp_path: Path):
    with scripted([reply()]) as upstream, running(tmp_path, upstream.base_url) as proxy:
        body = json.dumps({"messages": [user("Start ollama.")]}).encode()
        proxy.client().send(body, headers={"Authorization": "Bearer ollama"})
    assert the_run(tmp_path).messages[0]["content"] == "Start ollama."
