"""Overrides become one validated sweep, and a mistake is answered with what to write instead."""

import shlex
from dataclasses import replace

import pytest

from pipeline.planning.config import ConfigError, known, sweep_spec
from pipeline.planning.words import misread_numbers


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
        (["+sweep=demo", "model.temperature=0.5"], "or `sampling.temperature`?"),
        (["+sweep=demo", "seeds=[0,0]"], "\narms.full_history.seeds: .0. given twice"),
        (["+sweep=demo", "+arm@arms.x="], "use one of agent_diet"),
        (["+sweep=demo", "arms={}"], "remove entries by name: ~arms.full_history"),
        (["+sweep=demo", "model=endpoint"], "base_url|served_name"),
        (["+sweep=demo", "cluster=graze"], "Did you mean grace"),
        (["+sweep=demo", "+arm@arms.x=null"], "arm@arms.x=null: use one of .*plan_prune"),
        (["+sweep=demo", "model=null"], "model=null: use one of .*sim"),
        (["+sweep=demo", "arms.no_plan=null"], "write '~arms.no_plan'"),
        (["+sweep=demo", "seeds=[0]", "seeds=[1]"], "seeds is given twice"),
        (["+sweep=demo", "model=sim", "model=tiny"], "model is given twice"),
        (["+sweep=demo", "instances.ids=[]"], "names no instance"),
        (["+sweep=demo", "seeds=0,1"], "written 'seeds=.0,1.'"),
        (["+sweep=demo", "seeds=choice(0,1)"], "write a list"),
        (["+sweep=demo", "cluster.rollout.time_min=90:00"], "hours:minutes:seconds"),
        (["+sweep=demo", "model.revision=true"], "model.*revision: is text"),
    ],
)
def test_a_mistake_names_the_remedy(overrides, says):
    with pytest.raises(ConfigError, match=says):
        sweep_spec(overrides)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("model.revision=12e4567", lambda spec: spec.models["sim"].revision),
        ("model.revision=1.10", lambda spec: spec.models["sim"].revision),
        ("model.revision=0123", lambda spec: spec.models["sim"].revision),
        ("model.serve.env.A=1_0", lambda spec: spec.models["sim"].serve.env["A"]),
        ("cluster.account=0815", lambda spec: spec.cluster.account),
        ("results=1.50", lambda spec: spec.results),
    ],
)
def test_a_text_stays_as_it_was_written(word, found):
    assert found(sweep_spec(["+sweep=demo", word])) == word.partition("=")[2]


def test_texts_in_lists_and_mappings_stay_as_they_were_written():
    spec = sweep_spec(
        [
            "+sweep=demo",
            "instances.ids=[1e3, 1.10]",
            "model.serve.flags=[--port, 08000]",
            "model.serve.env={A: 1.10}",
        ]
    )
    assert spec.instances.ids == ("1e3", "1.10")
    assert spec.models["sim"].serve.flags == ("--port", "08000")
    assert spec.models["sim"].serve.env == {"A": "1.10"}


def test_a_number_stays_a_number():
    spec = sweep_spec(["+sweep=demo", "model.sampling.top_p=0.90", "model.extra_body={min_p: 0.1}"])
    assert spec.models["sim"].sampling.top_p == 0.9
    assert spec.models["sim"].extra_body == {"min_p": 0.1}


@pytest.mark.parametrize(
    ("written", "minutes"), [("90", 90), ("1:30:00", 90), ("0:00:30", 1), ("1-12", 2160)]
)
def test_a_time_limit_may_be_written_as_slurm_writes_it(written, minutes):
    spec = sweep_spec(["+sweep=demo", f"cluster.rollout.time_min={written}"])
    assert spec.cluster.rollout.time_min == minutes


def test_a_range_of_seeds_is_the_list_that_it_stands_for():
    assert sweep_spec(["+sweep=demo", "seeds=range(0,3)"]).seeds == (0, 1, 2)
    assert sweep_spec(["+sweep=demo", "seeds=range(1, 6, 2)"]).seeds == (1, 3, 5)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("account: 0815", "0815"),
        ("account: 010", "line 1: YAML reads 010 as 8; write '010' in quotes"),
        ("rollout: {time_min: 1:30:00}", "YAML reads 1:30:00 as 5400"),
        ("a:\n  - 007", "line 2: YAML reads 007 as 7"),
    ],
)
def test_a_number_that_yaml_reads_as_another_is_named_with_its_line(tmp_path, line, says):
    (tmp_path / "mine.yaml").write_text(f"{line}\n")
    found = list(misread_numbers(tmp_path))
    assert found == [] if says == "0815" else says in found[0]


def test_numbers_inside_texts_are_left_alone(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: '010'\nb: |\n  c: 010\nd: 2026-01-02\ne: 10\n")
    assert list(misread_numbers(tmp_path)) == []


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
