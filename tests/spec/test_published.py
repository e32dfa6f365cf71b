"""A sweep that carries a study's name carries its settings, and says which it has not."""

from pipeline.planning.config import sweep_spec
from pipeline.spec.parse import plain
from pipeline.spec.published import PublishedStudy, differences


def test_what_differs_is_said_by_key_with_both_values() -> None:
    study = PublishedStudy(
        source="s",
        settings={"models.*.temperature": 0.0, "seeds": [0], "agents.mini.step_limit": 200},
        remarks=("its ids are not public",),
    )
    sweep = {
        "models": {"a": {"temperature": 0.0}, "b": {"temperature": None}},
        "seeds": [0],
        "agents": {"mini": {"step_limit": 250}},
    }
    assert differences(study, sweep) == [
        "models.b.temperature is the model's own; the study had 0.0",
        "agents.mini.step_limit is 250; the study had 200",
        "its ids are not public",
    ]


def test_a_setting_that_the_sweep_does_not_know_differs() -> None:
    study = PublishedStudy(source="s", settings={"models.a.nothing": 1})
    assert differences(study, {"models": {}}) != []


def test_the_deletion_grid_runs_at_temperature_0_for_200_steps() -> None:
    spec = sweep_spec(["+sweep=grid42", "dataset=x"])
    assert {model.sampling.temperature for model in spec.models.values()} == {0.0}
    assert {agent.step_limit for agent in spec.agents.values()} == {200}
    assert spec.study is not None
    said = differences(spec.study, plain(spec))
    assert [text for text in said if "context_length" in text] == [
        "models.qwen3_5_27b.context_length is 131072; the study had 262144"
    ]
    assert not any("temperature" in text or "step_limit" in text for text in said)
    assert any("100 task ids are not public" in text for text in said)


def test_a_longer_window_is_no_difference() -> None:
    spec = sweep_spec(["+sweep=grid42", "dataset=x", "model.context_length=262144"])
    assert spec.study is not None
    assert not any("context_length" in text for text in differences(spec.study, plain(spec)))
