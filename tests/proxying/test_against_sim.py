"""Agents that work through a proxy, with the simulated server behind it."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.analysis.publish import analyze_results
from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.server import SimHandle, serve
from tests.proxying.command import started
from tests.proxying.running import TASK, Client, extra, rebuilt, running, runs, the_run
from tests.proxying.upstream import STREAM_HEAD, chunk, delta, event, scripted
from tests.serving import sim_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def repository(world: Path) -> Path:
    return sim_world.make_repository(world / "repository")


@pytest.fixture(scope="module")
def sim(world: Path):
    with serve(SimConfig(recipes=sim_world.write_recipes(world))) as handle:
        yield handle


def agent(port: int, repository: Path, folder: Path, **fields: object) -> sim_world.Run:
    """Return a finished run of an agent with real bash."""
    client = sim_world.Client(port)
    at = sim_world.copy_of(repository, folder)
    run = sim_world.Run(client, at, plan_tool=False, **fields).go()
    client.close()
    return run


def test_an_agent_solves_its_task_through_the_proxy_as_it_does_without(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    with running(tmp_path / "out", sim.base_url) as proxy:
        through = agent(proxy.port, repository, tmp_path / "a")
    alone = agent(sim.port, repository, tmp_path / "b")
    assert through.submission == alone.submission
    assert through.commands == alone.commands
    run = the_run(tmp_path / "out").run
    assert run["n_steps"] == through.n_steps == len(through.usages)
    assert run["input_tokens"] == sum(usage["prompt_tokens"] for usage in through.usages)
    assert run["output_tokens"] == sum(usage["completion_tokens"] for usage in through.usages)
    assert run["evidence"] == "sim"


def test_the_tables_hold_what_the_model_was_shown_and_not_what_the_client_sent(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    out = tmp_path / "out"
    with running(out, sim.base_url, "observation_mask[keep_last_turns=2]") as proxy:
        agent(proxy.port, repository, tmp_path / "a")
    run = the_run(out)
    last = run.calls[-1]["call_index"]
    shown = rebuilt(out, run, last)
    tools = [m["content"] for m in shown if m["role"] == "tool"]
    assert all("Old environment output" in text for text in tools[:-2])
    assert not any("Old environment output" in text for text in tools[-2:])
    assert run.run["n_pruned"] == len(tools) - 2
    # The server counted just this view: the rebuilt messages and the tool list are the prompt.
    tokenize = {"messages": shown, "tools": [sim_world.BASH_TOOL]}
    counted = Client(sim.port).send(json.dumps(tokenize).encode(), path="/tokenize")
    assert counted.json["count"] == run.calls[last]["prompt_tokens"]


def test_runs_of_one_task_at_once_are_told_apart_by_their_answers(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    """Same system prompt, same task, different seeds: the lists part with the first answer."""
    out = tmp_path / "out"
    with running(out, sim.base_url) as proxy, ThreadPoolExecutor(4) as pool:
        worked = list(
            pool.map(
                lambda seed: agent(proxy.port, repository, tmp_path / f"a{seed}", seed=seed),
                range(4),
            )
        )
    found = runs(out)
    assert sorted(len(run.calls) for run in found) == sorted(w.n_steps for w in worked)
    assert sorted(run.run["seed"] for run in found) == [0, 1, 2, 3]
    assert len({run.run["instance_id"] for run in found}) == 1
    assert not any("notes" in extra(run) for run in found)


def test_two_arms_in_one_folder_are_compared_by_analyze(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    out = tmp_path / "out"
    for arm in ("full_history", "observation_mask[keep_last_turns=2]"):
        with running(out, sim.base_url, arm) as proxy:
            agent(proxy.port, repository, tmp_path / f"{arm[:4]}")
    summary = analyze_results(out, None, reference="full_history", allow_invalid=True)
    assert summary.report.exists()
    first, second = (run.run for run in runs(out))
    assert first["block_id"] == second["block_id"], "one instance, one seed: a pair"
    assert second["n_pruned"] > 0 == first["n_pruned"]


def test_streams_leave_the_same_record_as_answers_in_one_piece(sim: SimHandle, tmp_path: Path):
    with running(tmp_path / "streamed", sim.base_url) as proxy:
        answer = Client(proxy.port).ask(
            [{"role": "user", "content": sim_world.TASK}],
            tools=[sim_world.BASH_TOOL],
            stream=True,
        )
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in answer.body, "the client did not ask what it cost"
    with running(tmp_path / "whole", sim.base_url) as proxy:
        Client(proxy.port).ask(
            [{"role": "user", "content": sim_world.TASK}], tools=[sim_world.BASH_TOOL]
        )
    streamed, whole = the_run(tmp_path / "streamed"), the_run(tmp_path / "whole")
    columns = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "finish_reason")
    assert [streamed.calls[0][c] for c in columns] == [whole.calls[0][c] for c in columns]
    assert streamed.calls[0]["prompt_tokens"] > 0
    texts = ("content", "reasoning", "n_tokens")
    assert [streamed.messages[-1][c] for c in texts] == [whole.messages[-1][c] for c in texts]
    names = [
        [c["function"]["name"] for c in json.loads(r.messages[-1]["tool_calls"])]
        for r in (streamed, whole)
    ]
    assert names[0] == names[1] == ["bash"]


# --- the command ---------------------------------------------------------------------------------
def test_ctrl_c_writes_every_run_and_the_next_proxy_goes_on_beside_it(
    sim: SimHandle, tmp_path: Path
):
    out, ask = tmp_path / "out", [{"role": "user", "content": sim_world.TASK}]
    with started("--arm", "full_history", "--upstream", sim.base_url, "--out", str(out)) as proxy:
        assert f"point your client at http://127.0.0.1:{proxy.port}/v1" in proxy.start_line
        first = Client(proxy.port).ask(ask, tools=[sim_world.BASH_TOOL]).message
        assert proxy.end(signal.SIGINT) == 0
    (run,) = runs(out)
    assert [m["role"] for m in run.messages] == ["user", "assistant"]
    with started("--arm", "full_history", "--upstream", sim.base_url, "--out", str(out)) as proxy:
        call = first["tool_calls"][0]["id"]
        grown = [*ask, first, {"role": "tool", "tool_call_id": call, "content": "a.py"}]
        Client(proxy.port).ask(grown, tools=[sim_world.BASH_TOOL])
        Client(proxy.port).ask(ask, tools=[sim_world.BASH_TOOL])
        assert proxy.end(signal.SIGTERM) == 0
    before, gone_on, again = runs(out)
    assert before.run["run_id"] == run.run["run_id"]
    assert extra(gone_on)["continues"] == run.run["run_id"]
    assert "closed" in extra(gone_on)["notes"][0]
    assert "continues" not in extra(again)
    assert [r.run["seed"] for r in (before, gone_on, again)] == [0, 1, 2]


def test_what_a_killed_proxy_had_is_written_by_the_next_one(sim: SimHandle, tmp_path: Path):
    out, ask = tmp_path / "out", [{"role": "user", "content": sim_world.TASK}]
    with started("--arm", "full_history", "--upstream", sim.base_url, "--out", str(out)) as proxy:
        said = Client(proxy.port).ask(ask, tools=[sim_world.BASH_TOOL]).message
        proxy.end(signal.SIGKILL)
    assert runs(out) == []
    with running(out, sim.base_url):
        pass
    run = the_run(out)
    assert run.messages[-1]["content"] == (said["content"] or "")
    assert run.calls[0]["prompt_tokens"] > 0
    assert "killed" in extra(run)["notes"][0]
    assert not list((out / "spool").iterdir())


def test_ctrl_c_waits_for_the_answer_under_way(world: Path, tmp_path: Path):
    out = tmp_path / "out"
    config = SimConfig(recipes=sim_world.write_recipes(world), latency_ms=1500)
    with (
        serve(config) as slow,
        started("--arm", "full_history", "--upstream", slow.base_url, "--out", str(out)) as proxy,
    ):
        answers: list = []
        ask = threading.Thread(
            target=lambda: answers.append(
                Client(proxy.port).ask([{"role": "user", "content": sim_world.TASK}])
            )
        )
        ask.start()
        proxy.wait_for("begins")
        assert proxy.end(signal.SIGINT) == 0
        ask.join()
    assert answers[0].status == 200
    assert the_run(out).calls[0]["prompt_tokens"] > 0


def test_one_folder_may_have_two_proxies_at_once(sim: SimHandle, tmp_path: Path):
    out, ask = tmp_path / "out", [{"role": "user", "content": sim_world.TASK}]
    with running(out, sim.base_url) as one, running(out, sim.base_url, "dedup") as other:
        one.ask(ask)
        other.proxy._tend()
        other.ask(ask)
    assert [run.run["arm"] for run in runs(out)] == ["full_history", "dedup"]


def test_a_second_ctrl_c_cuts_answers_off_and_what_came_of_them_is_kept(tmp_path: Path):
    out = tmp_path / "out"
    held = [STREAM_HEAD, chunk(event(delta(content="Half an ans"))), b"HOLD"]
    with (
        scripted(held) as upstream,
        started("--arm", "dedup", "--upstream", upstream.base_url, "--out", str(out)) as proxy,
    ):
        answers: list = []
        ask = threading.Thread(
            target=lambda: answers.append(Client(proxy.port).ask(TASK, stream=True))
        )
        ask.start()
        upstream.wait_for_chats(1)
        proxy.signal(signal.SIGINT)
        proxy.wait_for("waiting for 1 answers")
        assert proxy.end(signal.SIGINT) == 0
        ask.join()
    assert answers[0].broken
    assert b"Half an ans" in answers[0].body
    (call,) = the_run(out).calls
    assert "broke off" in call["error"]
    assert call["reply"] == "Half an ans"


def test_a_port_that_is_taken_is_said_and_nothing_is_left(sim: SimHandle, tmp_path: Path):
    out = tmp_path / "out"
    with pytest.raises(OSError, match="in use"), running(out, sim.base_url, port=sim.port):
        pass
    assert not out.exists()
