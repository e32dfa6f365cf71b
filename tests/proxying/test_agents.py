"""Agents of other projects through the proxy, as their users start them, with `sim` behind it."""

import json
from pathlib import Path

import pytest

from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.server import SimHandle, serve
from tests.proxying import agents
from tests.proxying.running import running, the_run
from tests.serving import sim_world

MASK = "observation_mask[keep_last_turns=3]"


@pytest.fixture
def sim(tmp_path: Path):
    with serve(SimConfig(recipes=sim_world.write_recipes(tmp_path))) as handle:
        yield handle


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return sim_world.make_repository(tmp_path / "repository")


def check_masked_run(out: Path) -> None:
    run = the_run(out)
    outputs = [message for message in run.messages if message["tool"] == "bash"]
    hidden = [m for m in outputs if (m["replaced_by"] or "").startswith("Old environment output")]
    assert len(outputs) > 8
    # All but the three that the last call showed; the last answer may have led to one more.
    assert len(hidden) in (len(outputs) - 3, len(outputs) - 4)
    assert all(call["prompt_tokens"] and call["error"] is None for call in run.calls)
    assert all(agents.KEY.encode() not in p.read_bytes() for p in out.rglob("*") if p.is_file())


@pytest.mark.slow
def test_the_command_line_of_mini_swe_agent_repairs_a_bug_through_the_proxy(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    out = tmp_path / "out"
    with running(out, sim.base_url, MASK) as proxy:
        url = proxy.proxy.base_url
        agents.mini(url, repository, sim_world.TASK, "model.model_kwargs.seed=1", model="sim")
    assert "if values else 0" in (repository / "stats.py").read_text()
    check_masked_run(out)
    trajectory = json.loads((repository / ".mini.json").read_text())
    assert trajectory["info"]["model_stats"]["api_calls"] == the_run(out).run["n_steps"]


@pytest.mark.slow
def test_the_command_line_of_llm_repairs_a_bug_through_the_proxy_by_streams(
    sim: SimHandle, repository: Path, tmp_path: Path
):
    command = agents.llm_command()
    if command is None:
        pytest.skip("PLANPRUNE_LLM names no `llm` command (pip install llm, in a venv of its own)")
    out = tmp_path / "out"
    with running(out, sim.base_url, MASK) as proxy:
        agents.llm(command, proxy.proxy.base_url, repository, sim_world.TASK, model="sim")
    assert "if values else 0" in (repository / "stats.py").read_text()
    check_masked_run(out)
    assert all(call["ttft_s"] is not None for call in the_run(out).calls), "they were streams"
