"""A real vLLM on CPU with the tiny random Qwen3: what it counts, and how it dies.

One server serves the tests up to the faults, which then are done to it. Each start takes half a
minute, so that the faults share them.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline import doctor
from pipeline.host.environment import environment
from pipeline.host.proctable import ProcessStat, all_processes
from pipeline.planning.doctor import Level
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.serving.client import HttpCompleter, RetryPolicy
from pipeline.serving.metrics import cache_config_of, metrics_text, sample_of
from pipeline.serving.ports import take_lane
from pipeline.serving.probe import edited_history_probe
from pipeline.serving.server import VllmServer
from pipeline.serving.tokens import ServedTokens
from pipeline.spec.model import ModelSpec
from tests.system import vllm_site
from tests.system.vllm_chat import Run, request, user

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(require: Callable[..., None]) -> ModelSpec:
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    return vllm_site.model("tiny", "model.serve.stall_s=10", "model.serve.max_restarts=2")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


def started(model: ModelSpec, logs: Path, **more: Any) -> VllmServer:
    return VllmServer(
        model,
        log=logs / "server.log",
        env=environment(),
        node="localhost",
        scratch=logs / "scratch",
        **more,
    )


@pytest.fixture(scope="module")
def server(model: ModelSpec, logs: Path) -> Iterator[VllmServer]:
    """Return the running server; its first port is stolen from it, so that it had to take another.

    The thief asks for the very port with SO_REUSEADDR, as another vLLM would.
    """
    monkeypatch = pytest.MonkeyPatch()
    stolen: list[socket.socket] = []

    def take_and_lose(start: int) -> Any:
        lane = take_lane(start)
        if not stolen:
            thief = socket.socket()
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("127.0.0.1", lane.http_port))
            thief.listen()
            stolen.append(thief)
        return lane

    monkeypatch.setattr("pipeline.serving.server.take_lane", take_and_lose)
    running = started(model, logs)
    monkeypatch.undo()
    assert f":{stolen[0].getsockname()[1]}/" not in running.base_url
    assert "ddress already in use" in (logs / "server.log").read_text()
    stolen[0].close()
    yield running
    running.stop()


@pytest.fixture
def completer(model: ModelSpec, server: VllmServer) -> Iterator[HttpCompleter]:
    client = HttpCompleter(model, server.base_url, server_alive=server.alive)
    yield client
    client.close()


def members(session: int | None) -> list[ProcessStat]:
    return [p for p in all_processes() if p.session == session and p.state not in "ZX"]


def eventually(holds: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# --- what it answers -----------------------------------------------------------------------------
def test_random_weights_make_valid_tool_calls_under_a_choice(completer: HttpCompleter):
    replies = [completer.complete(request([user("Go on.")], seed=seed)) for seed in range(6)]
    calls = [call for reply in replies for call in reply.tool_calls]
    assert len(calls) == 6
    assert {call.name for call in calls} <= {"bash", "planctl"}
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
    assert len({call.arguments for call in calls}) > 1


def test_a_named_tool_is_the_only_constraint_of_a_cleanup_turn(completer: HttpCompleter):
    choice = {"type": "function", "function": {"name": "prune_observations"}}
    reply = completer.complete(request([user("Clean up.")], tool_choice=choice, max_tokens=40))
    assert [call.name for call in reply.tool_calls] in (["prune_observations"], [])


def test_the_same_seed_gives_the_same_text(completer: HttpCompleter):
    free = {"extra": {"structured_outputs": None}, "tools": b"[]", "max_tokens": 20}
    first, again, other = (
        completer.complete(request([user("Tell.")], seed=seed, **free)) for seed in (5, 5, 6)
    )
    assert first.content == again.content != other.content
    assert first.completion_tokens == 20


def test_a_prompt_beyond_the_window_is_the_agents_ending(
    completer: HttpCompleter, model: ModelSpec
):
    with pytest.raises(ContextOverflowError, match="maximum context length"):
        completer.complete(request([user("word " * model.context_length)]))


def test_the_served_tokenizer_counts_texts(model: ModelSpec, server: VllmServer):
    counter = ServedTokens(server.base_url, model.request_name)
    assert counter.count("def add(a, b):\n    return a + b\n") == 12


# --- what it caches ------------------------------------------------------------------------------
def test_cached_tokens_are_our_common_prefix_in_whole_blocks_under_concurrency(
    completer: HttpCompleter, model: ModelSpec
):
    """Four runs at once, of which two are twins: `cache_salt` keeps each to itself."""
    block = model.serve.block_size
    assert block is not None
    runs = [Run(completer, name, block) for name in ("a", "b", "twin/1", "twin@2")]
    with ThreadPoolExecutor(len(runs)) as pool:
        done = list(pool.map(lambda run: run.go(7), runs))
    for run in done:
        assert run.reported == run.expected
        assert run.reported[0] == 0
        assert max(count or 0 for count in run.reported) > 5 * block


def test_without_a_salt_of_its_own_a_run_would_live_on_anothers_cache(completer: HttpCompleter):
    messages = [user("A task that two runs have. " * 40)]
    first = completer.complete(request(messages, "shared"))
    second = completer.complete(request(messages, "shared"))
    apart = completer.complete(request(messages, "of its own"))
    assert first.cached_tokens == apart.cached_tokens == 0
    assert (second.cached_tokens or 0) > 0


def test_the_probe_finds_a_plain_cache(
    completer: HttpCompleter, model: ModelSpec, server: VllmServer
):
    probe = edited_history_probe(completer, model, server.base_url, salt="probe", n_turns=8)
    assert (probe.cache_mode, probe.block_tokens) == ("plain", model.serve.block_size)
    assert probe.follows_prefix is True
    assert [call.what for call in probe.calls] == ["fresh", "again", "appended", "edited"]
    edited, whole = probe.calls[3], probe.calls[1]
    assert edited.cached_tokens is not None
    assert whole.cached_tokens is not None
    assert 0 < edited.cached_tokens < whole.cached_tokens


def test_doctor_shows_how_a_running_server_caches_an_edited_history(
    server: VllmServer, capsys: pytest.CaptureFixture[str]
):
    words = ["--server", server.base_url, *vllm_site.overrides("tiny")]
    # Weights drawn at random end no tool call, which is a warning; the cache is what counts here.
    assert doctor.main(words) < doctor.STATUS[Level.FAIL]
    said = capsys.readouterr().out
    assert "prefix cache: plain, block 32 tokens, max_num_batched_tokens 16384" in said
    assert "the common prefix, in whole blocks" in said
    # Counting in blocks that are not the server's would be wrong without anyone noticing.
    assert doctor.main([*words, "--json", "model.serve.block_size=16"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["block_tokens"] == 32
    assert printed["checks"][-1]["fix"] == "model.serve.block_size=32"


def test_its_metrics_become_a_sample(server: VllmServer):
    text = metrics_text(server.base_url)
    sample = sample_of(text, worker="w", sampled_at=0.0)
    assert sample.running is not None
    assert sample.waiting is not None
    assert sample.kv_usage is not None
    assert sample.preemptions is not None
    assert sample.prompt_tokens is not None
    assert sample.generation_tokens is not None
    assert sample.prompt_tokens > sample.generation_tokens > 0
    assert sample.prefix_queries is not None
    assert sample.prefix_hits is not None
    assert sample.prefix_queries > sample.prefix_hits > 0
    assert cache_config_of(text)["block_size"] == "32"


# --- how it dies ---------------------------------------------------------------------------------
def engine_of(server: VllmServer) -> int:
    """Return the EngineCore: the child of the API server with the most memory."""
    parents = {p.pid for p in members(server.session) if p.ppid == server.session}
    return max(
        (p for p in members(server.session) if p.ppid in parents), key=lambda p: p.rss_pages
    ).pid


def api_server_of(server: VllmServer) -> int:
    return next(p.pid for p in members(server.session) if p.ppid == server.session)


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Let this thread and those it starts run whenever they are ready, if we may.

    vLLM's processes yield the processor in a loop, and there are kernels (6.18) on which that
    leaves everyone else without one until an answer is there.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def fails_in_flight(
    model: ModelSpec, server: VllmServer, victim: int, number: signal.Signals
) -> tuple[float, str]:
    """Send a signal while a long call is in flight; return how long it took to fail, and how."""
    client = HttpCompleter(
        model,
        server.base_url,
        server_alive=server.alive,
        retry=RetryPolicy(max_attempts=50, first_wait_s=0.2, max_wait_s=0.5),
    )
    # Tens of seconds long.
    long = {"extra": {"structured_outputs": None, "ignore_eos": True}, "max_tokens": 12_000}
    with ThreadPoolExecutor(1) as pool:
        # The thread that calls inherits it: one that was put off would keep the interpreter's lock.
        with ahead_of_others():
            call = pool.submit(client.complete, request([user("Tell all.")], tools=b"[]", **long))
            time.sleep(1)
            assert not call.done()
            began = time.monotonic()
            os.kill(victim, number)
        with pytest.raises(ServerError) as caught:
            call.result(timeout=300)
        client.close()
        return time.monotonic() - began, str(caught.value)


@pytest.mark.parametrize("victim", [engine_of, api_server_of])
def test_a_killed_process_fails_its_calls_and_the_server_comes_back(
    model: ModelSpec, server: VllmServer, victim: Callable[[VllmServer], int]
):
    session, url, generation = server.session, server.base_url, server.generation
    _, said = fails_in_flight(model, server, victim(server), signal.SIGKILL)
    assert "gone" in said
    assert eventually(lambda: not members(session))
    assert not server.alive()
    server.restart()
    assert server.alive()
    assert server.generation == generation + 1
    assert server.base_url != url
    client = HttpCompleter(model, server.base_url)
    assert client.complete(request([user("Hi")])).tool_calls
    client.close()


def test_a_hung_engine_is_found_by_its_silence_and_restarts_end(
    model: ModelSpec, server: VllmServer
):
    """The API server lives on and says it is healthy; only the tokens stand still."""
    session = server.session
    _, said = fails_in_flight(model, server, engine_of(server), signal.SIGSTOP)
    assert "gone" in said
    assert "no token" in str(server.failure)
    assert eventually(lambda: not members(session))
    with pytest.raises(ServerError, match=r"(?s)failed 3 times, last since it made no token"):
        server.restart()


@pytest.mark.usefixtures("model")
def test_a_flag_that_vllm_does_not_know_is_shown_from_its_log(tmp_path: Path):
    bad = vllm_site.model("tiny", "model.serve.flags=[--no-such-flag]")
    with pytest.raises(ServerError, match=r"(?s)before it was ready.*no-such-flag"):
        started(bad, tmp_path)
    assert list((tmp_path / "scratch").iterdir()) == []
