"""What a run that splices asks of its server, and what its record says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from string import ascii_lowercase
from threading import Thread
from typing import Any

from pipeline.protocols import ChatRequest
from pipeline.serving.client import HttpCompleter
from pipeline.serving.splice.client import SplicedCompleter, SpliceRule
from pipeline.spec.model import ModelSpec
from tests.fakes import ScriptedModel, says

TEXTS = ["".join(Random(n).choices(ascii_lowercase, k=90)) for n in range(6)]
"""Six outputs of 90 characters, of which a token each is made."""


class VllmLike(BaseHTTPRequestHandler):
    """Tokens are characters; what was computed is the prompt less pieces and what it had."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked: list[tuple[str, Any]] = self.server.asked  # type: ignore[attr-defined]
        asked.append((self.path, body))
        if self.path == "/tokenize":
            answer: dict[str, Any] = {"tokens": tokens(body)}
        else:
            ids = body.get("prompt") or tokens(body)
            answer = {
                "choices": [
                    {"message": {"content": "z"}, "token_ids": [122], "finish_reason": "stop"}
                ],
                "usage": {"prompt_tokens": len(ids), "completion_tokens": 1},
                "prompt_token_ids": ids,
            }
            if "kv_transfer_params" in body:
                answer["kv_transfer_params"] = {"splice": {"rotated": 90, "computed": 10}}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def tokens(body: Any) -> list[int]:
    return [ord(c) for message in body["messages"] for c in message["content"]]


@contextmanager
def vllm_like() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), VllmLike)
    server.asked = []  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", server.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(url: str, **rule: int) -> SplicedCompleter:
    chat = HttpCompleter(ModelSpec(name="m", kind="vllm", repo="none"), url)
    return SplicedCompleter(chat, url, "m", run="cell.1", rule=SpliceRule(**rule))


def request(texts: list[str], **changes: Any) -> ChatRequest:
    messages = [json.dumps({"role": "user", "content": text}).encode() for text in texts]
    fields: dict[str, Any] = {"seed": 1, "max_tokens": 5, "cache_salt": "block"}
    return ChatRequest(messages=messages, **(fields | changes))


def omitted(*places: int) -> list[str]:
    return ["<omitted>" if place in places else text for place, text in enumerate(TEXTS)]


def test_text_between_moved_stretches_is_computed_first_and_then_the_chat_is_sent() -> None:
    with vllm_like() as (url, asked):
        completer = run(url)
        completer.complete(request(TEXTS[:5]))
        asked.clear()
        reply = completer.complete(request([*omitted(1, 3)[:5], "new"]))
        completer._pool.close()
    assert [path for path, _ in asked] == [
        "/tokenize", "/v1/completions", "/v1/completions", "/v1/chat/completions",
    ]  # fmt: skip
    bodies = [body for _, body in asked[1:]]
    assert {body["cache_salt"] for body in bodies} == {"cell.1.0"}
    plans = [body["kv_transfer_params"]["splice"] for body in bodies]
    pieces = [[0, 0, 90], [99, 180, 90], [198, 360, 90]]
    assert [(plan["run"], plan["pieces"], plan.get("part", False)) for plan in plans] == [
        ("cell.1.0", pieces, True), ("cell.1.0", pieces, True), ("cell.1.0", pieces, False),
    ]  # fmt: skip
    assert [len(body["prompt"]) for body in bodies[:2]] == [99, 198]
    assert (reply.prompt_tokens, reply.rotated_tokens, reply.recomputed_tokens) == (291, 261, 30)
    assert (reply.reused_tokens, reply.cached_tokens, reply.server_params) == (0, 261, None)


def test_repair_leaves_the_first_tokens_of_a_moved_stretch_to_be_computed() -> None:
    with vllm_like() as (url, asked):
        completer = run(url, repair_tokens=20)
        completer.complete(request(TEXTS[:3]))
        completer.complete(request(omitted(1)[:3]))
        completer.close()
    plan = asked[-2][1]["kv_transfer_params"]["splice"]
    assert plan["pieces"] == [[0, 0, 90], [119, 200, 70]]


def test_a_refresh_ends_the_old_salt_and_plans_nothing() -> None:
    with vllm_like() as (url, asked):
        completer = run(url, refresh_edits=1)
        for cut in ((), (1,), (1, 2)):
            completer.complete(request(omitted(*cut)))
        completer.close()
    ends = [
        b["cache_salt"]
        for _, b in asked
        if (b.get("kv_transfer_params") or {}).get("splice", {}).get("end")
    ]
    assert ends == ["cell.1.0", "cell.1.1"]
    last = [body for path, body in asked if path == "/v1/chat/completions"][-1]
    assert last["cache_salt"] == "cell.1.1"
    assert last["kv_transfer_params"]["splice"]["pieces"] == []


def test_a_conversation_beside_the_history_is_sent_as_it_is() -> None:
    with vllm_like() as (url, asked):
        completer = run(url)
        reply = completer.complete(request(["Sum up."], is_view=False))
        completer.close()
    ((path, body),) = asked
    assert path == "/v1/chat/completions"
    assert body["cache_salt"] == "block"
    assert "kv_transfer_params" not in body
    assert reply.recomputed_tokens is None


def test_a_server_without_a_store_answers_as_ever_and_nothing_is_claimed_of_it() -> None:
    with ScriptedModel([says("one"), says("two"), says("three"), says("four")]) as server:
        completer = run(server.base_url)
        reply = completer.complete(request(TEXTS[:2]))
        completer.close()
    assert reply.content in ("one", "two")
    assert (reply.reused_tokens, reply.rotated_tokens, reply.recomputed_tokens) == (None,) * 3
