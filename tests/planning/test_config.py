"""Overrides become one validated sweep, and a mistake is answered with what to write instead."""

import shlex
from dataclasses import replace

import pytest

from pipeline.planning.config import ConfigError, known, sweep_spec


def test_every_shipped_sweep_resolves():
    for name in known("sweep"):
        assert sweep_spec([f"+sweep={name}"]).name == name


def test_every_shipped_model_fits_the_demo():
    for name in known("model"):
        extra = ["model.base_url=http://127.0.0.1:1/v1", "model.served_name=x"]
        overrides = ["+sweep=demo", f"model={name}", *(extra if name == "endpoint" else [])]
        assert len(sweep_spec(overrides).models) == 1


def test_every_shipped_arm_can_be_added_under_another_name():
    for name in known("arm"):
        spec = sweep_spec(["+sweep=demo", f"+arm@arms.another={name}"])
        assert spec.arms["another"].name == "another"


def test_overrides_reach_arms_models_and_pools():
    spec = sweep_spec(
        ["+sweep=demo", "arms.plan_prune.seeds=[7]", "model.max_tokens=512", "seeds=[1,2,3]"]
    )
    assert spec.arms["plan_prune"].seeds == (7,)
    assert spec.models["sim"].max_tokens == 512
    assert spec.seeds == (1, 2, 3)


def test_the_sweep_of_windows_changes_the_window_alone():
    words = ["+sweep=windows", "models.qwen3_5_27b_131k.revision=abc"]
    models = sweep_spec([*words, "models.qwen3_5_27b_131k.serve.model_path=/weights"]).models
    windows = [model.context_length for model in models.values()]
    assert windows == [16_384, 24_576, 32_768, 65_536, 131_072]
    alike = [replace(m, name="", context_length=windows[0]) for m in models.values()]
    assert all(model == alike[0] for model in alike)


def test_dataset_and_results_are_plain_keys():
    spec = sweep_spec(["+sweep=demo", "dataset=rows.parquet", "results=there"])
    assert (spec.benchmark.dataset, spec.results) == ("rows.parquet", "there")
    assert sweep_spec(["+sweep=demo"]).results == "results/demo"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], "known: .*demo"),
        (["+sweep=dmeo"], "Did you mean demo"),
        (["+sweep=demo", "model=sin"], "no model named 'sin'. Did you mean sim"),
        (["+sweep=demo", "+arm@arms.x=plan_prun"], "Did you mean plan_prune"),
        (["+sweep=demo", "arms.plan_prun.seeds=[0]"], "no arm named 'plan_prun'. .*plan_prune[?]"),
        (["+sweep=demo", "arms.plan_prun.policy.every_k=3"], "Did you mean plan_prune"),
        (["+sweep=demo", "sedes=[0]"], "Did you mean 'seeds'"),
        (["+sweep=demo", "seeds=zero"], "seeds"),
        (["+sweep=demo", "+colour=blue"], "colour: unknown key"),
        (["+sweep=demo", "results=/a/b=1"], "quoted twice: 'results=\"/a/b=1\"'"),
        (["+sweep=demo", "arms.plan_prune.policy.evry_k=3"], "did you mean `every_k`"),
        (["+sweep=demo", "instances.sampel=3"], "did you mean `sample`"),
        (["+sweep=demo", "model=endpoint"], "base_url|served_name"),
        (["+sweep=demo", "cluster=graze"], "Did you mean grace"),
    ],
)
def test_a_mistake_names_the_remedy(overrides, says):
    with pytest.raises(ConfigError, match=says):
        sweep_spec(overrides)


@pytest.mark.parametrize("value", ["a 'b\"", "a=b{c", "back\\slash's"])
def test_the_quoted_form_that_an_unreadable_value_is_answered_with_can_be_pasted(value):
    with pytest.raises(ConfigError) as told:
        sweep_spec(["+sweep=demo", f"results={value}"])
    (pasted,) = shlex.split(str(told.value).rpartition("quoted twice: ")[2])
    assert sweep_spec(["+sweep=demo", pasted]).results == value


def test_a_word_that_is_no_override_is_told_what_one_is():
    with pytest.raises(ConfigError, match="key=value"):
        sweep_spec(["+sweep=demo", "smoke"])


TWO_AGENTS = ["+agent@agents.mini=mini", "+agent@agents.short=mini", "agents.short.step_limit=5"]


def test_a_sweep_may_have_several_agents_each_named_by_its_key():
    spec = sweep_spec(["+sweep=demo", *TWO_AGENTS])
    assert {name: (a.name, a.step_limit) for name, a in spec.agents.items()} == {
        "mini": ("mini", 250),
        "short": ("short", 5),
    }
    assert list(sweep_spec(["+sweep=demo", "agent=mini_text"]).agents) == ["mini_text"]


@pytest.mark.parametrize("word", ["agent=mini_text", "agent.step_limit=5"])
def test_a_word_for_the_one_agent_is_refused_where_there_are_several(word):
    with pytest.raises(ConfigError, match=r"agents\.mini, agents\.short"):
        sweep_spec(["+sweep=demo", *TWO_AGENTS, word])


def test_agents_that_keep_outputs_to_different_lengths_are_refused():
    with pytest.raises(ConfigError, match="output_limit_bytes"):
        sweep_spec(["+sweep=demo", *TWO_AGENTS, "agents.short.output_limit_bytes=5"])
