"""The HTTP client against a real server: what it sends, what it reads, what it tries again."""

import json
import random
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pipeline.protocols import ChatReply, ChatRequest
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.serving.client import (
    HttpCompleter,
    RequestRefusedError,
    RetryPolicy,
    completer_for,
    ping_model,
)
from pipeline.serving.connections import fetch
from pipeline.spec.model import ModelSpec, SamplingSpec
from pipeline.spec.parse import SpecError, parsed
from tests.fakes import Message, Reply, ScriptedModel, bash, says

SALTS = ["run.1", "x" * 128, "x" * 129, "a/b", "a\\b", "a@b", "a.b"]
FAST = RetryPolicy(max_attempts=4, first_wait_s=0.0)


def model(**changes: Any) -> ModelSpec:
    return ModelSpec(**({"name": "scripted", "kind": "endpoint", "repo": "none"} | changes))


def request(*texts: str, **changes: Any) -> ChatRequest:
    messages = [json.dumps({"role": "user", "content": t}).encode() for t in texts or ("Hi",)]
    fields: dict[str, Any] = {"seed": 5, "max_tokens": 10, "cache_salt": "run.1"}
    return ChatRequest(messages=messages, **(fields | changes))


def ask(
    script: Sequence[Reply] | Callable[[Message], Reply],
    sent: ChatRequest | None = None,
    *,
    spec: ModelSpec | None = None,
    **more: Any,
) -> tuple[ChatReply, list[Message]]:
    with ScriptedModel(script) as server:
        completer = HttpCompleter(spec or model(), server.base_url, **({"retry": FAST} | more))
        try:
            return completer.complete(sent or request()), server.requests
        finally:
            completer.close()


# --- requests ------------------------------------------------------------------------------------
def test_a_body_holds_what_was_asked_and_nothing_else():
    _, (body,) = ask([says("Hello")], request("Hi", "wörld"))
    assert body == {
        "model": "scripted",
        "seed": 5,
        "max_tokens": 10,
        "cache_salt": "run.1",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "wörld"}],
    }


def test_a_salt_that_vllm_would_refuse_is_sent_as_its_hash():
    """vLLM 0.32 takes 128 characters, none of them @, / or a backslash."""
    sent = [ask([says("ok")], request(cache_salt=salt))[1][0]["cache_salt"] for salt in SALTS]
    assert sent[:2] == SALTS[:2]
    assert len(set(sent)) == len(SALTS)
    assert all(len(salt) <= 128 and not set("@/\\\0") & set(salt) for salt in sent)


def test_a_named_tool_is_the_only_constraint_of_its_answer():
    """vLLM refuses a request with both; the model's own constraint gives way."""
    spec = model(extra_body={"structured_outputs": {"choice": ["a"]}})
    named = {"type": "function", "function": {"name": "bash"}}
    _, (free,) = ask([says("ok")], request(), spec=spec)
    _, (bound,) = ask([says("ok")], request(tool_choice=named), spec=spec)
    assert free["structured_outputs"] == {"choice": ["a"]}
    assert bound["structured_outputs"] is None


def test_a_server_that_spells_the_body_otherwise_is_sent_its_own_spelling():
    spec = model(body={"cache_salt": None, "max_tokens": "max_completion_tokens", "seed": None})
    _, (body,) = ask([says("Hello")], spec=spec)
    assert body == {
        "model": "scripted",
        "max_completion_tokens": 10,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_body_without_the_conversation_is_no_model():
    with pytest.raises(SpecError, match=r"body: .*messages cannot be renamed or left out"):
        parsed(ModelSpec, {"name": "m", "kind": "sim", "repo": "r", "body": {"messages": None}})


def test_the_models_settings_are_in_every_body():
    spec = model(
        served_name="other",
        sampling=SamplingSpec(temperature=0.6, top_k=20),
        chat_template_kwargs={"preserve_thinking": True},
        extra_body={"min_tokens": 1},
        return_token_ids=True,
    )
    _, (body,) = ask([says("Hello")], spec=spec)
    assert body["model"] == "other"
    assert (body["temperature"], body["top_k"], "top_p" in body) == (0.6, 20, False)
    assert body["chat_template_kwargs"] == {"preserve_thinking": True}
    assert (body["min_tokens"], body["return_token_ids"]) == (1, True)


def test_a_request_may_set_its_own_temperature_choice_and_fields():
    sent = request(
        temperature=0.0,
        tools=b'[{"type": "function"}]',
        tool_choice="required",
        extra={"structured_outputs": {"choice": ["a"]}},
    )
    _, (body,) = ask([says("a")], sent, spec=model(sampling=SamplingSpec(temperature=0.6)))
    assert body["temperature"] == 0.0
    assert body["tools"] == [{"type": "function"}]
    assert body["tool_choice"] == "required"
    assert body["structured_outputs"] == {"choice": ["a"]}


def test_the_key_is_sent_as_a_bearer_token():
    seen = []

    def script(_: Message) -> Reply:
        return says("x")

    with ScriptedModel(script) as server:
        server.on_headers = seen.append
        completer = HttpCompleter(model(), server.base_url, api_key="k1")
        completer.complete(request())
        completer.close()
    assert seen[0]["Authorization"] == "Bearer k1"


# --- replies -------------------------------------------------------------------------------------
def test_a_reply_is_read_with_all_it_cost():
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    reply, _ = ask([says("Hm", bash("ls"), reasoning="think", usage=usage)])
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("Hm", "think", "tool_calls")
    assert (reply.prompt_tokens, reply.cached_tokens) == (30, 16)
    assert (reply.completion_tokens, reply.reasoning_tokens) == (4, 3)
    assert reply.tool_calls[0].name == "bash"
    assert json.loads(reply.tool_calls[0].arguments) == {"command": "ls"}
    assert reply.retry_tokens == 0


def test_reasoning_is_read_under_its_older_name_too():
    message = {"role": "assistant", "content": None, "reasoning_content": "old"}
    reply, _ = ask([Reply(message=message)])
    assert (reply.content, reply.reasoning) == ("", "old")


@pytest.mark.parametrize(("kind", "cached"), [("endpoint", None), ("vllm", 0)])
def test_a_missing_count_of_cached_tokens_is_unknown_unless_the_server_counts(kind, cached):
    reply, _ = ask([says("x", usage={"prompt_tokens_details": None})], spec=model(kind=kind))
    assert reply.cached_tokens == cached
    assert reply.reasoning_tokens is None


@pytest.mark.parametrize("written", [30, 30.0, "30"])
def test_a_count_may_be_written_as_a_text_or_with_a_point(written):
    usage = {"prompt_tokens": written, "completion_tokens": 4}
    reply, _ = ask([says("x", usage=usage)])
    assert reply.prompt_tokens == 30


@pytest.mark.parametrize("count", [None, -1, "many", float("nan"), 1.5, [3]])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_an_answer_without_its_counts_is_the_servers_fault(name, count):
    with pytest.raises(ServerError, match="usage without its counts"):
        ask([says("x", usage={name: count})] * 4)


@pytest.mark.parametrize("count", [None, -1, "many", float("nan")])
def test_a_count_of_cached_tokens_that_is_none_is_unknown(count):
    reply, _ = ask([says("x", usage={"prompt_tokens_details": {"cached_tokens": count}})])
    assert reply.cached_tokens is None


def test_content_in_parts_is_one_text():
    parts = [{"type": "text", "text": "Look"}, {"type": "thinking"}, {"type": "text", "text": "."}]
    reply, _ = ask([Reply(message={"content": parts})])
    assert reply.content == "Look."


def test_token_ids_are_kept_where_the_server_gives_them():
    body = {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop", "token_ids": [3]}],
        "prompt_token_ids": [1, 2],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
    }
    reply, _ = ask([Reply(body=json.dumps(body).encode())])
    assert (reply.prompt_token_ids, reply.completion_token_ids) == ([1, 2], [3])


def test_text_that_is_no_utf8_is_mended():
    body = rb'{"choices": [{"message": {"content": "a\ud800b"}}], "usage": {"prompt_tokens": 1,'
    reply, _ = ask([Reply(body=body + rb' "completion_tokens": 1}}')])
    assert reply.content == "a\ufffdb"


def test_calls_without_an_id_get_one():
    calls = [{"function": {"name": "bash", "arguments": {"command": "ls"}}}] * 2
    reply, _ = ask([Reply(message={"content": "", "tool_calls": calls})])
    assert [c.id for c in reply.tool_calls] == ["call_0", "call_1"]
    assert json.loads(reply.tool_calls[0].arguments) == {"command": "ls"}


def test_half_a_surrogate_pair_that_a_model_escaped_is_replaced_and_a_whole_one_kept():
    """A plan step with half an emoji in its title once ended the run when the plan was shown."""
    whole, half = r'{"title": "\ud83d\ude00"}', r'{"title": "\ud83d!"}'
    calls = [
        {"function": {"name": "planctl", "arguments": text}} for text in (whole, half, half[:-1])
    ]
    reply, _ = ask([says("", *calls)])
    kept, mended, broken = (call.arguments for call in reply.tool_calls)
    assert kept == whole
    assert json.loads(mended) == {"title": "\ufffd!"}
    assert broken == half[:-1]
    assert [call.lone_surrogates for call in reply.tool_calls] == [0, 1, 0]
    assert reply.lone_surrogates == 1


# --- retries -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fault",
    [
        says(status=500, body=b"oops"),
        says(status=503, body=b"starting"),
        says(status=429, body=b"slow down"),
        says("x", torn=True),
        says(body=b'{"choices": [], "usage": {}}'),
        says(body=b'{"choices": [{"message": null}], "usage": {"prompt_tokens": 7}}'),
        says(body=b'{"choices": [{"message": {"content": "x"}}], "usage": {"total_tokens": 7}}'),
        says(body=b'{"choi'),
        says(hang_up=True),
    ],
)
def test_a_failure_of_our_side_is_tried_again_and_its_prompt_counted_apart(fault):
    reply, requests = ask([fault, fault, says("Hello", usage={"prompt_tokens": 7})])
    assert reply.content == "Hello"
    assert reply.prompt_tokens == 7
    assert reply.retry_tokens == 14
    assert requests[0] == requests[1] == requests[2]


def test_a_silent_server_is_given_up_and_asked_again():
    reply, requests = ask(
        [says("late", delay_s=1.0), says("in time")], spec=model(request_timeout_s=0.2)
    )
    assert reply.content == "in time"
    assert len(requests) == 2


def test_an_answer_that_is_only_slow_to_come_is_waited_for():
    reply, requests = ask([says("there", delay_s=0.3)], spec=model(request_timeout_s=5.0))
    assert (reply.content, len(requests)) == ("there", 1)
    assert reply.latency_s >= 0.3


def test_retries_end_after_so_many_attempts():
    with pytest.raises(ServerError, match="after 4 attempts: HTTP 500: oops"):
        ask(lambda _: says(status=500, body=b"oops"))


def test_retries_end_after_so_long():
    waited: list[float] = []
    with pytest.raises(ServerError, match="attempts"):
        ask(
            lambda _: says(status=500, body=b"oops"),
            retry=RetryPolicy(max_attempts=99, first_wait_s=1.0, total_s=20.0),
            sleep=waited.append,
            clock=lambda: sum(waited),
            rng=random.Random(1),
        )
    assert 10 < sum(waited) <= 20


def test_waits_double_with_jitter_up_to_a_limit():
    waited: list[float] = []
    with pytest.raises(ServerError):
        ask(
            lambda _: says(status=500, body=b"oops"),
            retry=RetryPolicy(max_attempts=6, first_wait_s=1.0, max_wait_s=4.0),
            sleep=waited.append,
            rng=random.Random(1),
        )
    for wait_s, most in zip(waited, [1, 2, 4, 4, 4], strict=True):
        assert most / 2 <= wait_s <= most


def test_a_server_that_is_known_to_be_gone_is_not_asked_again():
    requests = []

    def script(body: Message) -> Reply:
        requests.append(body)
        return says(status=500, body=b"oops")

    with pytest.raises(ServerError, match="is gone"):
        ask(script, server_alive=lambda: False)
    assert len(requests) == 1


def test_no_server_at_all_is_a_server_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    completer = HttpCompleter(model(), f"http://127.0.0.1:{port}/v1", retry=FAST)
    with pytest.raises(ServerError, match="cannot connect"):
        completer.complete(request())


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",
        "The engine prompt length 9 exceeds the max_model_len 8. Please reduce prompt.",
    ],
)
def test_a_prompt_that_does_not_fit_is_an_overflow_and_not_tried_again(text):
    script = [says(status=400, body=json.dumps({"error": {"message": text}}).encode())]
    with pytest.raises(ContextOverflowError):
        ask(script)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_any_other_refusal_is_a_configuration_error_and_not_tried_again(status):
    with pytest.raises(RequestRefusedError, match=f"HTTP {status}.*no such field"):
        ask([says(status=status, body=b"no such field")])


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_not_followed_and_names_the_key(status):
    with pytest.raises(RequestRefusedError, match="give that address as model"):
        ask([says(status=status, body=b"")])


def test_a_base_url_without_a_host_is_refused_at_once():
    with pytest.raises(ValueError, match="http://HOST:PORT/v1"):
        HttpCompleter(model(), "localhost:8000")


# --- connections ---------------------------------------------------------------------------------
def test_one_thread_uses_one_connection():
    with ScriptedModel(lambda _: says("x")) as server:
        completer = HttpCompleter(model(), server.base_url)
        for _ in range(5):
            completer.complete(request())
        completer.close()
        assert server.connections == 1


def test_threads_share_a_completer_but_no_connection():
    with ScriptedModel(lambda _: says("x", delay_s=0.05)) as server:
        completer = HttpCompleter(model(), server.base_url)

        def work() -> None:
            completer.complete(request())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.connections == 8


def test_a_connection_that_the_server_closed_while_idle_is_no_failure():
    with ScriptedModel(lambda _: says("x", usage={"prompt_tokens": 7})) as server:
        completer = HttpCompleter(model(), server.base_url, retry=RetryPolicy(max_attempts=1))
        completer.complete(request())
        server.drop_connections()
        assert completer.complete(request()).retry_tokens == 0
        completer.close()
        assert server.connections == 2


# --- proxies -------------------------------------------------------------------------------------
def passing_on(target: ScriptedModel, seen: list[str]) -> ThreadingHTTPServer:
    """Return a forward proxy that knows every name to be `target`."""

    class Forward(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            seen.append(f"{self.path} {self.headers['Proxy-Authorization']}")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            data = fetch(target.base_url + "/chat/completions", body=body, timeout_s=5)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
    return proxy


def test_an_endpoint_is_reached_through_the_proxy_of_the_environment():
    seen: list[str] = []
    with ScriptedModel(lambda _: says("through")) as server:
        proxy = passing_on(server, seen)
        address = f"http://me:s%40cret@127.0.0.1:{proxy.server_port}"
        completer = completer_for(model(), "http://model.test/v1", {"http_proxy": address})
        assert completer.complete(request()).content == "through"
        completer.close()
        proxy.shutdown()
        proxy.server_close()
    told = b64encode(b"me:s@cret").decode()
    assert seen == [f"http://model.test/v1/chat/completions Basic {told}"]


@pytest.mark.parametrize("kind", ["vllm", "sim"])
def test_a_server_of_ours_is_never_reached_through_a_proxy(kind):
    with ScriptedModel([says("direct")]) as server:
        url = server.base_url.replace("127.0.0.1", socket.gethostname())
        nobody = {"http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
        pool = completer_for(model(kind=kind), url, nobody)._pool
        assert pool.where == url


def test_a_proxy_that_does_not_answer_is_named_with_the_way_around_it():
    completer = completer_for(
        model(), "http://model.test/v1", {"http_proxy": "http://u:p@127.0.0.1:9"}, retry=FAST
    )
    with pytest.raises(ServerError) as failed:
        completer.complete(request())
    assert "the proxy 127.0.0.1:9 of $http_proxy" in str(failed.value)
    assert "NO_PROXY=model.test" in str(failed.value)
    assert "u:p" not in str(failed.value)


# --- ping ----------------------------------------------------------------------------------------
def test_a_ping_returns_once_the_model_completes():
    with ScriptedModel([says("x")], name="qwen") as server:
        ping_model(server.base_url, "qwen")
        assert server.requests[0]["max_tokens"] == 1


def test_a_ping_names_the_models_that_are_served_instead():
    with (
        ScriptedModel([], name="qwen") as server,
        pytest.raises(ServerError, match="serves qwen, not llama"),
    ):
        ping_model(server.base_url, "llama")


def test_a_model_that_is_listed_and_does_not_answer_is_not_ready():
    with (
        ScriptedModel([says(status=500, body=b"no weights")], name="qwen") as server,
        pytest.raises(ServerError, match="no weights"),
    ):
        ping_model(server.base_url, "qwen")
