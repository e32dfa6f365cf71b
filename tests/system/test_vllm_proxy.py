"""The view proxy in front of a real vLLM: other people's agents, streams, errors."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.host.environment import environment
from pipeline.serving.server import VllmServer
from pipeline.spec.model import ModelSpec
from tests.proxying import agents
from tests.proxying.running import Client, rebuilt, running, the_run, user
from tests.serving import sim_world
from tests.system import vllm_site

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(require: Callable[..., None]) -> ModelSpec:
    require("vllm", vllm_site.found("smollm2"), remedy=vllm_site.REMEDY)
    return vllm_site.model("smollm2")


@pytest.fixture(scope="module")
def server(model: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    folder = tmp_path_factory.mktemp("vllm")
    running_server = VllmServer(
        model,
        log=folder / "server.log",
        env=environment(),
        node="localhost",
        scratch=folder / "scratch",
    )
    yield running_server
    running_server.stop()


def test_mini_swe_agent_runs_on_a_masked_view_of_which_the_record_is_exact(
    model: ModelSpec, server: VllmServer, tmp_path: Path
):
    repository = sim_world.make_repository(tmp_path / "repository")
    # So small a model needs its answers shaped; see conf/model/smollm2.yaml.
    kwargs = {"max_tokens": 80, "seed": 3, "extra_body": dict(model.extra_body)}
    agent = {"step_limit": 5, "system_template": "Answer with a word and one block."}
    config = tmp_path / "few_steps.yaml"
    config.write_text(yaml.safe_dump({"agent": agent, "model": {"model_kwargs": kwargs}}))
    out, arm = tmp_path / "out", "observation_mask[keep_last_turns=1]"
    with running(out, server.base_url, arm, text_actions=True) as proxy:
        agents.mini(
            *(proxy.proxy.base_url, repository, "Repair stats.py.", str(config)),
            model="smollm2",
            text=True,
        )
    run = the_run(out)
    assert run.run["evidence"] == "live"
    assert run.run["n_steps"] >= 3
    assert run.run["n_pruned"] >= 1
    assert any("Old environment output" in str(m["replaced_by"]) for m in run.messages)
    tokenize = Client(int(server.base_url.rpartition(":")[2].removesuffix("/v1")))
    # vLLM on a CPU answers a first request with 500 now and then; mini asks again by itself.
    answered = [(index, call) for index, call in enumerate(run.calls) if call["error"] is None]
    assert len(answered) >= 3
    for index, call in answered:
        body = {"model": "smollm2", "messages": rebuilt(out, run, index)}
        counted = tokenize.send(json.dumps(body).encode(), path="/tokenize").json["count"]
        assert counted == call["prompt_tokens"], "the model was shown what the tables say"
        assert call["completion_tokens"] > 0


def test_a_stream_of_vllm_passes_and_its_cost_is_known(server: VllmServer, tmp_path: Path):
    with running(tmp_path, server.base_url) as proxy:
        got = proxy.ask([user("Count to five.")], model="smollm2", stream=True, max_tokens=24)
    assert got.body.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{' not in got.body
    (call,) = the_run(tmp_path).calls
    assert call["completion_tokens"] == 24
    assert call["finish_reason"] == "length"
    assert 0 < call["ttft_s"] < call["latency_s"]
    assert the_run(tmp_path).messages[-1]["content"]


def test_llm_talks_to_vllm_through_the_proxy(server: VllmServer, tmp_path: Path):
    command = agents.llm_command()
    if command is None:
        pytest.skip("PLANPRUNE_LLM names no `llm` command (pip install llm, in a venv of its own)")
    with running(tmp_path / "out", server.base_url) as proxy:
        said = agents.llm(
            *(command, proxy.proxy.base_url, tmp_path, "Say hello.", "-o", "max_tokens", "12"),
            model="smollm2",
            tools=False,
        )
    run = the_run(tmp_path / "out")
    assert run.messages[-1]["content"].strip() == said.strip()
    assert run.calls[0]["completion_tokens"] == 12


@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": 100_000}, {"model": "no-such-model"}, {"temperature": "hot"}],
    ids=["full window", "unknown model", "wrong type"],
)
def test_an_error_of_vllm_is_the_same_through_the_proxy(
    server: VllmServer, tmp_path: Path, fields: dict
):
    asked = {"model": "smollm2", **fields}
    with running(tmp_path, server.base_url) as proxy:
        through = proxy.ask([user("Hi.")], **asked)
    direct = Client(int(server.base_url.rpartition(":")[2].removesuffix("/v1")))
    alone = direct.ask([user("Hi.")], **asked)
    assert (through.status, through.body) == (alone.status, alone.body)
    assert through.status >= 400
