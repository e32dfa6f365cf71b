"""A conversation finds what is odd about a server, and names the key that mends it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.records.failure import ServerError
from pipeline.serving.client import HttpCompleter, RetryPolicy
from pipeline.serving.finding import Finding, Offered, blocking_text
from pipeline.serving.server_check import server_findings
from pipeline.spec.model import ModelSpec
from tests.fakes import Message, Reply, ScriptedModel, bash, call, says

TOOLS = Offered(
    tools=tuple(
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("bash", "prune_observations")
    ),
    tool_choice={"type": "function", "function": {"name": "prune_observations"}},
)


def tokens_of(body: Message) -> int:
    return len(json.dumps(body["messages"])) // 4


def decent(body: Message) -> Reply:
    """Answer as a server does that honours a named choice and counts what it is sent."""
    usage = {"prompt_tokens": tokens_of(body), "completion_tokens": 12}
    named = isinstance(body.get("tool_choice"), dict)
    return says("", call("prune_observations", ids=[]) if named else bash("ls"), usage=usage)


def refuses(field: str, words: str) -> Callable[[Message], Reply]:
    def script(body: Message) -> Reply:
        if field not in body:
            return decent(body)
        return says(status=400, body=json.dumps({"error": {"message": words}}).encode())

    return script


def found(
    script: Callable[[Message], Reply],
    *,
    offered: Offered = TOOLS,
    about: Message | None = None,
    name: str = "scripted",
    **changes: Any,
) -> dict[str, Finding]:
    model = ModelSpec(**({"name": "scripted", "kind": "endpoint", "repo": "r"} | changes))
    with ScriptedModel(script, name=name, about=about) as server:
        findings = server_findings(
            lambda asked: HttpCompleter(
                asked, server.base_url, retry=RetryPolicy(max_attempts=2, first_wait_s=0.0)
            ),
            model,
            server.base_url,
            offered,
            salt="check-1",
        )
    return {finding.what: finding for finding in findings}


def test_nothing_is_in_the_way_of_a_decent_server():
    findings = found(decent, about={"max_model_len": 40_000})
    assert blocking_text(list(findings.values())) == ""
    assert not any(finding.fix for finding in findings.values())
    assert list(findings) == ["model", "window", "body", "usage", "tool calls", "history", "edit"]
    assert "40,000 tokens, of which 32,768 are used" in findings["window"].found


def test_the_whole_body_is_sent_as_runs_send_it():
    seen: list[Message] = []

    def script(body: Message) -> Reply:
        seen.append(body)
        return decent(body)

    found(script, extra_body={"min_p": 0.1})
    first = seen[0]
    assert (first["seed"], first["cache_salt"], first["min_p"]) == (1, "check-1", 0.1)
    assert first["tool_choice"] == TOOLS.tool_choice
    assert first["tools"] == list(TOOLS.tools)
    assert "max_tokens" in first


def test_a_model_that_is_not_there_is_named_with_those_that_are():
    finding = found(decent, name="other")["model"]
    assert finding.blocks
    assert "serves other, not scripted" in finding.found
    assert finding.fix == "model.served_name=other"


@pytest.mark.parametrize(
    "about", [{"max_model_len": 9000}, {"context_length": 9000}, {"max_model_len": "9000"}]
)
def test_a_window_below_ours_is_refused_before_anything_is_asked(about):
    findings = found(decent, about=about)
    assert "9,000 tokens are served, and model.context_length is 32,768" in findings["window"].found
    assert "model.context_length=9000" in findings["window"].fix
    assert "body" not in findings


@pytest.mark.parametrize(
    ("field", "words", "fix"),
    [
        (
            "cache_salt",
            "Unrecognized request argument supplied: cache_salt",
            "{cache_salt: null}",
        ),
        (
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "{max_tokens: max_completion_tokens}",
        ),
        ("seed", "extra fields not permitted", "{seed: null}"),
        ("tool_choice", "only auto is supported for this parameter", "{tool_choice: null}"),
    ],
)
def test_a_field_that_is_refused_is_named_with_its_key(field, words, fix):
    finding = found(refuses(field, words))["body"]
    assert finding.blocks
    assert finding.fix == f"'model.body={fix}'"
    assert words in finding.found


def test_all_fields_that_are_refused_are_named_at_once():
    def script(body: Message) -> Reply:
        for name in ("cache_salt", "seed"):
            if name in body:
                return refuses(name, f"unknown field {name}")(body)
        return decent(body)

    assert found(script)["body"].fix == "'model.body={cache_salt: null, seed: null}'"


def test_a_spelling_that_is_configured_is_used():
    script = refuses("cache_salt", "unknown field cache_salt")
    assert not found(script, body={"cache_salt": None})["body"].blocks


def test_a_refusal_that_no_field_explains_is_shown_in_the_servers_words():
    finding = found(lambda _: says(status=401, body=b"who are you"))["body"]
    assert finding.blocks
    assert "who are you" in finding.found
    assert "model.api_key_env" in finding.fix


def forgets(limit: int) -> Callable[[Message], Reply]:
    """Return a server that drops the oldest messages beyond `limit` tokens and says nothing."""

    def script(body: Message) -> Reply:
        size = tokens_of(body)
        kept = size if size <= limit else limit // 2 + 2
        return says("", bash("ls"), usage={"prompt_tokens": kept, "completion_tokens": 5})

    return script


@pytest.mark.parametrize("limit", [1024, 2048, 4096, 8192])
def test_a_server_that_forgets_in_silence_is_found_by_its_counts(limit):
    finding = found(forgets(limit))["history"]
    assert finding.blocks
    assert "leaves messages out in silence" in finding.found
    assert "model.context_length" in finding.fix


def test_a_server_whose_template_leaves_outputs_out_is_found():
    def script(body: Message) -> Reply:
        shown = [m for m in body["messages"] if m["role"] != "tool"]
        return says("", bash("ls"), usage={"prompt_tokens": tokens_of({"messages": shown})})

    finding = found(script)["history"]
    assert finding.blocks
    assert "leaves messages out in silence" in finding.found
    assert "agent=mini_text" in finding.fix


def test_a_server_that_leaves_the_tools_out_of_steps_is_found():
    def script(body: Message) -> Reply:
        tools = 500 if "tool_choice" in body else 0
        return says("", bash("ls"), usage={"prompt_tokens": tokens_of(body) + tools})

    finding = found(script)["tools"]
    assert finding.blocks
    assert finding.fix == "'model.extra_body={tool_choice: auto}'"
    assert "tools" not in found(script, extra_body={"tool_choice": "auto"})


def test_an_edit_that_saves_nothing_is_found():
    longest = 0

    def script(body: Message) -> Reply:
        nonlocal longest
        longest = max(longest, tokens_of(body))
        return says("", bash("ls"), usage={"prompt_tokens": longest, "completion_tokens": 5})

    assert found(script)["edit"].blocks


def overflows(window: int, at: int) -> Callable[[Message], Reply]:
    def script(body: Message) -> Reply:
        size = tokens_of(body)
        if size < at:
            return decent(body)
        words = f"request ({size} tokens) exceeds the available context size ({window} tokens)"
        return says(status=400, body=json.dumps({"error": {"message": words}}).encode())

    return script


def test_a_smaller_window_is_found_where_only_a_refusal_tells():
    finding = found(overflows(4096, 4000))["window"]
    assert finding.blocks
    assert "model.context_length=4096" in finding.fix
    # A refusal that contradicts itself is said, and is no reason to stop.
    assert not found(overflows(32768, 1000))["window"].blocks


def test_tool_calls_that_come_back_as_text_are_found():
    def script(body: Message) -> Reply:
        return says("<tool_call>bash</tool_call>", usage={"prompt_tokens": tokens_of(body)})

    finding = found(script)["tool calls"]
    assert finding.blocks
    assert "<tool_call>" in finding.found
    assert "agent=mini_text" in finding.fix
    assert "model.serve.tool_parser" in found(script, kind="vllm")["tool calls"].fix


def test_an_ignored_choice_and_an_ignored_length_are_said_and_do_not_stop_a_sweep():
    def script(body: Message) -> Reply:
        usage = {"prompt_tokens": tokens_of(body), "completion_tokens": 400}
        return says("", bash("ls"), usage=usage)

    findings = found(script)
    assert "takes no notice of tool_choice" in findings["tool calls"].fix
    assert "400 came" in findings["length"].found
    assert not any(finding.blocks for finding in findings.values())


def test_a_model_without_tools_is_asked_for_none():
    seen: list[Message] = []

    def script(body: Message) -> Reply:
        seen.append(body)
        return says("text", usage={"prompt_tokens": tokens_of(body)})

    findings = found(script, offered=Offered(), mode="text")
    assert "tool calls" not in findings
    assert not any("tools" in body or "tool_choice" in body for body in seen)
    assert {m["role"] for body in seen for m in body["messages"]} == {"system", "user", "assistant"}


def test_more_cached_than_prompt_tokens_are_pointed_out():
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 99}}
    findings = found(lambda _: says("", bash("ls"), usage=usage))
    assert "99 cached tokens in a prompt of 40" in findings["usage"].found


def test_an_answer_without_usage_is_no_answer():
    body = b'{"choices": [{"message": {"content": "x"}}]}'
    with pytest.raises(ServerError, match="lacks choices or usage"):
        found(lambda _: says(body=body))
