"""Prompts from an installed package or a file: mini's own, as they are published."""

from importlib.resources import files

import pytest
import yaml

from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.planning.prompts_from import PromptsError, with_prompts

PUBLISHED = "minisweagent:benchmarks/swebench"


def published():
    text = files("minisweagent").joinpath("config", "benchmarks", "swebench.yaml").read_text()
    return yaml.safe_load(text)


def test_the_published_agent_has_the_packages_prompts_word_for_word():
    (agent,) = sweep_spec(["+sweep=demo", "agent=mini_published"]).agents.values()
    there = published()
    assert agent.system_template == there["agent"]["system_template"]
    assert agent.instance_template == there["agent"]["instance_template"]
    assert agent.observation_template == there["model"]["observation_template"]
    assert agent.format_error_template == there["model"]["format_error_template"]
    assert agent.prompts_from == PUBLISHED
    assert agent.step_limit == there["agent"]["step_limit"]


def test_prompts_of_a_file_are_found_under_their_key(tmp_path):
    path = tmp_path / "prompts.yaml"
    path.write_text(yaml.safe_dump({"mine": {"system_template": "Be brief."}, "other": 1}))
    agent = {"name": "a", "instance_template": "{{ task }}", "prompts_from": f"{path}:mine"}
    assert with_prompts(agent) == {**agent, "system_template": "Be brief."}
    assert with_prompts({**agent, "prompts_from": str(path)})["system_template"] == "Be brief."


def test_an_agent_without_a_source_stays_as_it_is():
    assert with_prompts({"name": "a"}) == {"name": "a"}


@pytest.mark.parametrize(
    "source",
    ["nopackage:x", "minisweagent:nothing", "nowhere.yaml:a", "minisweagent:../../pyproject"],
)
def test_what_cannot_be_read_is_named_with_what_to_write(source):
    with pytest.raises(PromptsError, match="write PACKAGE:NAME"):
        with_prompts({"prompts_from": source})


def test_a_sweep_says_so_before_anything_is_written():
    with pytest.raises(ConfigError, match="prompts_from: nothing can be read from nopackage:x"):
        sweep_spec(["+sweep=demo", "agent.prompts_from=nopackage:x"])


def test_a_file_without_prompts_is_refused(tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("a: 1\n")
    with pytest.raises(PromptsError, match="has none of system_template"):
        with_prompts({"prompts_from": str(path)})
