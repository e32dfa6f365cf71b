"""A server's life, with a program in vLLM's place that is up in a second.

The same with vLLM itself: tests/system/test_vllm.py.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.host.environment import environment
from pipeline.host.proctable import ProcessStat, all_processes
from pipeline.records.failure import ServerError
from pipeline.serving.client import ping_model
from pipeline.serving.parts import CHECKOUT, missing_parts
from pipeline.serving.ports import FIRST_PORT, LANE_WIDTH, N_LANES, is_listening, take_lane
from pipeline.serving.server import ServerStoppedError, VllmServer
from pipeline.serving.server_log import error_said
from pipeline.serving.stall import StallRule
from pipeline.spec.model import ModelSpec, ServeSpec
from tests.serving.vllm_standin import program

MakeServer = Callable[..., VllmServer]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    started: list[VllmServer] = []

    def make(*flags: str, more: dict[str, Any] | None = None, **serve: Any) -> VllmServer:
        settings = {"max_restarts": 1, "stall_s": 60.0} | serve
        spec = ModelSpec(
            name="standin",
            kind="vllm",
            repo="none",
            serve=ServeSpec(python=str(program(tmp_path)), flags=flags, **settings),
        )
        server = VllmServer(
            spec,
            log=tmp_path / "logs" / "server.log",
            env=environment(),
            node="here",
            scratch=tmp_path / "scratch",
            watch_s=0.1,
            **(more or {}),
        )
        started.append(server)
        return server

    yield make
    for server in started:
        server.stop()


def session_of(server: VllmServer) -> list[ProcessStat]:
    """Return who lives in the server's session."""
    return [p for p in all_processes() if p.session == server.session and p.state not in "ZX"]


def gone(session: int) -> bool:
    return not any(p.session == session and p.state not in "ZX" for p in all_processes())


def eventually(holds: Callable[[], bool], within_s: float = 30.0) -> bool:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def http_server_of(server: VllmServer) -> int:
    """Return the child of the guard: the program itself."""
    return next(p.pid for p in session_of(server) if p.ppid == server.session)


# --- a good life ---------------------------------------------------------------------------------
def test_a_server_that_is_ready_answers_and_leaves_nothing_behind(
    make_server: MakeServer, tmp_path: Path
):
    server = make_server()
    session = server.session
    assert session is not None
    assert server.alive()
    assert len(session_of(server)) == 3  # guard, server, engine
    ping_model(server.base_url, "standin")
    server.stop()
    server.stop()
    assert gone(session)
    assert not server.alive()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert "standin starts" in (tmp_path / "logs" / "server.log").read_text()


def test_two_servers_of_a_node_share_no_port(make_server: MakeServer):
    one, other = make_server(), make_server()
    assert one.base_url != other.base_url
    assert one.alive()
    assert other.alive()


# --- death and hanging ---------------------------------------------------------------------------
def test_a_killed_server_is_noticed_and_comes_back_elsewhere_until_it_may_not(
    make_server: MakeServer,
):
    server = make_server()
    first_url, first_session = server.base_url, server.session
    os.kill(http_server_of(server), signal.SIGKILL)
    assert eventually(lambda: server.failure is not None)
    assert not server.alive()
    assert eventually(lambda: gone(first_session))  # its engine too
    server.restart()
    assert server.alive()
    assert server.generation == 1
    assert server.base_url != first_url
    os.kill(http_server_of(server), signal.SIGKILL)
    assert eventually(lambda: not server.alive())
    with pytest.raises(ServerError, match=r"failed 2 times, last since its process ended"):
        server.restart()


def test_a_hung_server_is_ended_so_that_nobody_waits_for_it(make_server: MakeServer):
    server = make_server(stall_s=0.5)
    session = server.session
    os.kill(http_server_of(server), signal.SIGSTOP)
    assert eventually(lambda: server.failure is not None)
    assert "metrics did not answer" in str(server.failure)
    assert eventually(lambda: gone(session))


def test_a_worker_that_is_killed_takes_its_server_along(tmp_path: Path):
    script = (
        "import sys; from pathlib import Path; from pipeline.serving.server import VllmServer;"
        "from pipeline.spec.model import ModelSpec, ServeSpec;"
        "from pipeline.host.environment import environment;"
        f"spec = ModelSpec(name='standin', kind='vllm', repo='none', serve=ServeSpec("
        f"python={str(program(tmp_path))!r}));"
        f"s = VllmServer(spec, log=Path({str(tmp_path / 'log')!r}), env=environment(), node='n');"
        "print(s.session, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
        env=environment() | {"TMPDIR": str(tmp_path)},
    ) as worker:
        assert worker.stdout is not None
        session = int(worker.stdout.readline())
        assert not gone(session)
        worker.kill()
    assert eventually(lambda: gone(session))


# --- servers that do not come up -----------------------------------------------------------------
def test_a_server_that_exits_says_with_what_and_shows_the_end_of_its_log(make_server: MakeServer):
    with pytest.raises(ServerError, match=r"(?s)ended with status 3 before.*no such flag: --x"):
        make_server("--exit", "3", "--say", "no such flag: --x")


def test_a_server_whose_log_stands_still_is_given_up(make_server: MakeServer):
    with pytest.raises(ServerError, match=r"(?s)was not ready.*stood still.*loading weights"):
        make_server("--never-ready", "--say", "loading weights", start_silence_s=4.0)


def test_a_server_that_keeps_logging_is_waited_for_up_to_the_cap(make_server: MakeServer):
    with pytest.raises(ServerError, match=r"(?s)was not ready after.*still loading"):
        make_server("--never-ready", "--chatter", start_timeout_s=5.0)


def test_a_start_is_given_up_when_the_worker_is_to_stop(make_server: MakeServer):
    asked = iter([False, False, True, True])
    with pytest.raises(ServerStoppedError):
        make_server("--never-ready", more={"should_stop": lambda: next(asked)})


def test_a_missing_environment_is_named_with_the_command_that_makes_it(tmp_path: Path):
    spec = ModelSpec(name="m", kind="vllm", repo="none", serve=ServeSpec(python="no/python"))
    with pytest.raises(ServerError, match=r"no .*no/python; make vLLM's environment with `make"):
        VllmServer(spec, log=tmp_path / "log", env={}, node="here")


# --- ports ---------------------------------------------------------------------------------------
def test_a_port_that_someone_takes_in_spite_of_us_is_left_to_them(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
):
    """A thief must ask for the very port with SO_REUSEADDR; then ours ends and tries another."""
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
    server = make_server()
    assert server.alive()
    assert server.generation == 0
    assert f":{stolen[0].getsockname()[1]}/" not in server.base_url
    stolen[0].close()


def test_a_held_port_is_for_one_listener_that_asks_for_it():
    lane = take_lane(7)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", lane.http_port))
    assert not is_listening(lane.http_port)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", lane.http_port))
        server.listen()
        assert is_listening(lane.http_port)
    lane.close()


def test_lanes_overlap_nowhere_and_are_free_again_when_closed():
    lanes = [take_lane(3) for _ in range(5)]
    bases = [lane.base for lane in lanes]
    assert len(set(bases)) == 5
    assert all(
        (base - FIRST_PORT) % LANE_WIDTH == 0 and base < FIRST_PORT + N_LANES * LANE_WIDTH
        for base in bases
    )
    for lane in lanes:
        lane.close()
    again = take_lane(3)
    assert again.base == bases[0]
    again.close()


# --- the stall rule ------------------------------------------------------------------------------
def test_tokens_that_stand_still_while_requests_are_there_are_a_stall():
    rule = StallRule(10.0, now_s=0.0)
    assert rule.seen(5, has_work=True, now_s=1.0) is None
    assert rule.seen(5, has_work=True, now_s=11.0) is None
    assert "no token for 11 s" in str(rule.seen(5, has_work=True, now_s=12.0))


def test_an_idle_server_is_no_stalled_one_and_neither_is_one_that_just_got_work():
    rule = StallRule(10.0, now_s=0.0)
    rule.seen(5, has_work=False, now_s=1.0)
    assert rule.seen(5, has_work=False, now_s=500.0) is None
    assert rule.seen(5, has_work=True, now_s=501.0) is None
    assert rule.seen(6, has_work=True, now_s=900.0) is None


def test_a_server_that_was_idle_for_long_has_to_prove_itself():
    rule = StallRule(10.0, now_s=0.0)
    rule.seen(5, has_work=False, now_s=1.0)
    assert not rule.is_unproven(11.0)
    assert rule.is_unproven(12.0)
    rule.proven(12.0)
    assert not rule.is_unproven(22.0)


def test_silence_counts_from_the_last_answer():
    rule = StallRule(10.0, now_s=0.0)
    rule.seen(5, has_work=False, now_s=100.0)
    assert rule.silent(110.0) is None
    assert "did not answer for 11 s" in str(rule.silent(111.0))


# --- before it is started ------------------------------------------------------------------------
def test_what_is_missing_is_named_by_its_key_with_the_command_that_brings_it(tmp_path: Path):
    bare = ModelSpec(name="m", kind="vllm", repo="none")
    spec = replace(bare, serve=ServeSpec(python="no/python", model_path=str(tmp_path)))
    missing = missing_parts(spec)
    assert set(missing) == {"serve.python", "serve.model_path"}
    assert "make serve" in missing["serve.python"]
    assert "pipeline.stage model" in missing["serve.model_path"]
    boxed = replace(bare, serve=ServeSpec(runtime="apptainer"))
    assert "containers/vllm.def" in missing_parts(boxed)["serve.image"]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    whole = ServeSpec(python=sys.executable, model_path=str(tmp_path))
    assert missing_parts(replace(bare, serve=whole)) == {}


def test_the_error_behind_a_dead_engine_is_found_in_the_log(tmp_path):
    log = tmp_path / "server.log"
    assert error_said(log) == ""
    log.write_text("INFO loading\n")
    assert error_said(log) == ""
    log.write_text(
        "ERROR 11-30 [core.py:1] Traceback (most recent call last):\n"
        "ERROR 11-30 [core.py:1] x.HeadMismatchError: heads/other has width 8\n"
        "ERROR 11-30 [core.py:9] Exception: WorkerProc failed. See stack trace for root cause.\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert error_said(log) == "x.HeadMismatchError: heads/other has width 8"
