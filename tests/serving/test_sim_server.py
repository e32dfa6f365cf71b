"""The HTTP side of the simulated agent."""

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from pipeline.serving.sim import SimConfig, serve
from pipeline.serving.sim.prompt import PromptEncoder
from tests.serving.sim_world import (
    BASH_TOOL,
    CLEANUP,
    PRUNE_TOOL,
    TASK,
    Client,
    write_recipes,
)

ASKED = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": TASK}]
CLEANED = [
    *ASKED,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"command": "ls"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": f"a.py\n{CLEANUP}[3] 5 tokens · ls"},
]
PRUNE = {
    "tools": [BASH_TOOL, PRUNE_TOOL],
    "tool_choice": {"type": "function", "function": {"name": "prune_observations"}},
}


def sim_command(*flags):
    words = [sys.executable, "-m", "pipeline.serving.sim", *flags]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def client_of(tmp_path):
    running = []

    def start(**options):
        sim = serve(SimConfig(recipes=write_recipes(tmp_path), **options))
        client = Client(sim.port)
        running.append((sim, client))
        return client

    yield start
    for sim, client in running:
        client.close()
        sim.stop()


def test_it_says_everywhere_that_it_is_a_simulation(client_of):
    client = client_of()
    assert client.send("GET", "/health") == (200, b"")
    (card,) = json.loads(client.send("GET", "/v1/models")[1])["data"]
    assert card["id"] == "sim"
    assert "simulation" in card["owned_by"]
    shown = sim_command("--help")
    assert shown.returncode == 0
    assert "SIMULATED" in shown.stdout


def test_equal_requests_get_equal_answers(client_of):
    client = client_of()
    first, again = (client.chat(ASKED, tools=[BASH_TOOL]) for _ in range(2))
    assert first["choices"] == again["choices"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert first["choices"][0]["message"]["reasoning"]
    assert client.chat(ASKED, tools=[BASH_TOOL], seed=2)["choices"] != first["choices"]


def test_usage_adds_up_and_token_ids_are_as_many_as_counted(client_of):
    answer = client_of().chat(ASKED, tools=[BASH_TOOL], return_token_ids=True)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert len(answer["prompt_token_ids"]) == usage["prompt_tokens"]
    assert len(answer["choices"][0]["token_ids"]) == usage["completion_tokens"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < reasoning < usage["completion_tokens"]


def test_a_history_that_only_grows_is_cached_up_to_the_last_block(client_of):
    client = client_of(block_size=16)
    fields = {"tools": [BASH_TOOL], "cache_salt": "run1", "return_token_ids": True}
    first = client.chat(ASKED, **fields)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    message = first["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "output " * 50}
        for call in message["tool_calls"]
    ]
    second = client.chat([*ASKED, message, *results], **fields)
    n_first = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    known = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["prompt_token_ids"][: len(known)] == known
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == n_first // 16 * 16
    stranger = client.chat([*ASKED, message, *results], **{**fields, "cache_salt": "run2"})
    assert stranger["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_prompt_beyond_the_window_is_refused_in_vllms_words(client_of):
    client = client_of(max_model_len=64)
    body = {"model": "sim", "messages": [{"role": "user", "content": "word " * 100}]}
    status, raw = client.send("POST", "/v1/chat/completions", body)
    assert status == 400
    assert "maximum context length is 64 tokens" in json.loads(raw)["error"]["message"]


def test_an_answer_that_does_not_fit_is_cut_and_says_so(client_of):
    answer = client_of().chat(ASKED, tools=[BASH_TOOL], max_tokens=5)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"] == []
    assert answer["usage"]["completion_tokens"] <= 5


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"model": "other", "messages": ASKED}, 404, "`other` does not exist"),
        ({"model": "sim"}, 400, "messages"),
        ({"model": "sim", "messages": []}, 400, "empty"),
        ([], 400, "JSON object"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(client_of, body, status, says):
    got, raw = client_of().send("POST", "/v1/chat/completions", body)
    assert got == status
    assert says in json.loads(raw)["error"]["message"]


def test_a_broken_http_request_does_not_stop_the_server(client_of):
    client = client_of()
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    assert client.send("GET", "/health")[0] == 200
    assert client.send("GET", "/nothing")[0] == 404


def test_several_requests_sent_at_once_are_answered_in_order(client_of):
    client = client_of()
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as raw:
        raw.sendall(
            b"GET /health HTTP/1.1\r\n\r\nGET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        received = b""
        while chunk := raw.recv(4096):
            received += chunk
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"content-length: 0") < received.index(b"list")


def test_tokenize_counts_texts_and_chats(client_of):
    client = client_of()
    count = json.loads(client.send("POST", "/tokenize", {"prompt": "two words"})[1])
    assert (count["count"], len(count["tokens"])) == (2, 2)
    chat = json.loads(client.send("POST", "/tokenize", {"messages": ASKED})[1])
    assert chat["tokens"] == PromptEncoder().prompt_ids(ASKED, "").tolist()


def test_metrics_carry_vllms_names(client_of):
    client = client_of()
    usage = client.chat(ASKED)["usage"]
    text = client.send("GET", "/metrics")[1].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    label = '{engine="0",model_name="sim"}'
    assert float(values[f"vllm:prompt_tokens_total{label}"]) == usage["prompt_tokens"]
    assert float(values[f"vllm:generation_tokens_total{label}"]) == usage["completion_tokens"]
    assert float(values[f"vllm:prefix_cache_queries_total{label}"]) == usage["prompt_tokens"]
    assert f"vllm:num_preemptions_total{label}" in values
    # The question itself is no request, and what is kept of ended ones holds nobody up.
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert float(values[f"vllm:{name}{label}"]) == 0


def test_a_choice_is_taken_from_those_allowed(client_of):
    answer = client_of().chat(ASKED, structured_outputs={"choice": ["yes", "no"]})
    assert answer["choices"][0]["message"]["content"] in {"yes", "no"}


# --- faults --------------------------------------------------------------------------------------
def test_injected_server_errors_have_a_new_chance_when_repeated(client_of):
    client = client_of(faults={"http500": 0.5})
    body = {"model": "sim", "messages": ASKED}
    statuses = [client.send("POST", "/v1/chat/completions", body)[0] for _ in range(20)]
    assert set(statuses) == {200, 500}


def test_the_same_faults_strike_again_after_a_restart(client_of):
    body = {"model": "sim", "messages": ASKED}
    first, second = (
        [c.send("POST", "/v1/chat/completions", body)[0] for _ in range(12)]
        for c in (client_of(faults={"http500": 0.5}), client_of(faults={"http500": 0.5}))
    )
    assert first == second


def test_a_hanging_server_never_answers(client_of):
    client = client_of(faults={"hang": 1.0})
    client.connection.timeout = 0.3
    with pytest.raises(TimeoutError):
        client.chat(ASKED)


def test_a_slow_answer_comes_late_but_comes(client_of):
    client = client_of(faults={"slow": 1.0}, slow_s=0.2)
    before = time.monotonic()
    client.chat(ASKED)
    assert time.monotonic() - before >= 0.2


def test_a_truncated_body_is_no_json(client_of):
    client = client_of(faults={"truncated": 1.0})
    status, raw = client.send("POST", "/v1/chat/completions", {"model": "sim", "messages": ASKED})
    assert status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(raw)


def test_bad_arguments_are_no_json(client_of):
    client = client_of(faults={"bad_arguments": 1.0})
    call = client.chat(ASKED, tools=[BASH_TOOL])["choices"][0]["message"]["tool_calls"][0]
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["function"]["arguments"])


def test_an_unknown_tool_was_not_offered(client_of):
    client = client_of(faults={"unknown_tool": 1.0})
    call = client.chat(ASKED, tools=[BASH_TOOL])["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] not in {"bash", "planctl"}


def test_wrong_ids_were_not_listed(client_of):
    client = client_of(faults={"wrong_ids": 1.0})
    call = client.chat(CLEANED, **PRUNE)["choices"][0]["message"]["tool_calls"][0]
    assert 3 not in json.loads(call["function"]["arguments"])["ids"]


def test_without_faults_only_listed_ids_are_pruned(client_of):
    client = client_of()
    for seed in range(10):
        call = client.chat(CLEANED, seed=seed, **PRUNE)["choices"][0]["message"]["tool_calls"][0]
        assert call["function"]["name"] == "prune_observations"
        assert set(json.loads(call["function"]["arguments"])["ids"]) <= {3}


def test_an_empty_answer_has_neither_text_nor_calls(client_of):
    client = client_of(faults={"empty": 1.0})
    (choice,) = client.chat(ASKED, tools=[BASH_TOOL])["choices"]
    assert not choice["message"]["content"]
    assert not choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "stop"


def test_an_unknown_fault_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match="unknown fault 'explode'; known: http500, hang"):
        SimConfig(faults={"explode": 0.1})


def test_a_broken_recipe_file_is_named(tmp_path):
    path = tmp_path / "recipes.json"
    path.write_text('{"demo-1": {"summary": "x"}}')
    with pytest.raises(ValueError, match=r"recipes\.json: the recipe of demo-1 is broken"):
        serve(SimConfig(recipes=path))


# --- the process ---------------------------------------------------------------------------------
def start_process(tmp_path, *flags):
    port_file = tmp_path / "port"
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.serving.sim", "--port-file", str(port_file), *flags],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not port_file.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process, int(port_file.read_text())


def test_the_process_writes_its_port_answers_and_ends_on_sigterm(tmp_path):
    recipes = write_recipes(tmp_path)
    process, port = start_process(tmp_path, "--recipes", str(recipes), "--served-name", "sim")
    try:
        client = Client(port)
        assert client.chat(ASKED)["model"] == "sim"
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_the_process_ends_when_its_parent_is_gone(tmp_path):
    parent = subprocess.Popen(["sleep", "60"])
    process, _ = start_process(tmp_path, "--parent-pid", str(parent.pid))
    try:
        assert process.poll() is None
        parent.kill()
        parent.wait()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_said():
    with serve(SimConfig()) as sim:
        done = sim_command("--port", str(sim.port))
    assert done.returncode == 2
    assert "in use" in done.stderr


def test_a_stream_adds_up_to_the_same_answer_and_says_what_it_cost_when_asked(client_of):
    client = client_of()
    whole = client.chat(ASKED, tools=[BASH_TOOL])
    body = {"model": "sim", "messages": ASKED, "seed": 1, "tools": [BASH_TOOL], "stream": True}
    for options in ({}, {"stream_options": {"include_usage": True}}):
        status, raw = client.send("POST", "/v1/chat/completions", {**body, **options})
        assert status == 200
        *lines, done = [line for line in raw.decode().split("\n\n") if line]
        assert done == "data: [DONE]"
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
        deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
        message = whole["choices"][0]["message"]
        for name in ("reasoning", "content"):
            assert "".join(d.get(name) or "" for d in deltas) == (message[name] or "")
        calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert arguments == message["tool_calls"][0]["function"]["arguments"]
        usages = [c["usage"] for c in chunks if c.get("usage")]
        assert [u["completion_tokens"] for u in usages] == (
            [whole["usage"]["completion_tokens"]] if options else []
        )
