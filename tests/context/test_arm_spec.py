"""Arms as data: parsed strictly, every field classified, what follows from them."""

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from pipeline.arms.deletion import Deletion
from pipeline.arms.plan_prune import PlanPrune
from pipeline.fields.identity import RUNTIME, digest_of, marks_of, science_of
from pipeline.spec.arm import ArmSpec
from pipeline.spec.deletion_grid import deletion_grid, grid_yaml
from pipeline.spec.parse import parsed, plain
from tests.context.arms import CONF, all_arms, arm, arm_names

ARM = TypeAdapter(ArmSpec)


@pytest.mark.parametrize("name", arm_names())
def test_every_arm_file_is_a_valid_arm_named_like_its_file(name: str) -> None:
    assert arm(name).name == name


def test_a_misspelt_key_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="every_kk"):
        ARM.validate_python({"name": "x", "policy": {"kind": "plan_prune", "every_kk": 3}})
    with pytest.raises(ValidationError, match="budgett"):
        ARM.validate_python({"name": "x", "policy": {"kind": "full_history"}, "budgett": 3})


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="observation_mask"):
        ARM.validate_python({"name": "x", "policy": {"kind": "mask"}})


def test_a_window_in_which_no_text_has_room_is_refused() -> None:
    """A pruner that read nothing at a time would never come to the end of an output."""
    policy = {"kind": "llmlingua2", "model": "m", "window_tokens": 2}
    with pytest.raises(ValidationError, match="greater than or equal to 64"):
        ARM.validate_python({"name": "x", "policy": policy})


PLACE = {"path", "device", "batch_windows", "url", "timeout_s"}
"""Where a line pruner's model lies and runs."""


def test_every_field_of_every_policy_is_science_but_the_place_of_a_pruners_model() -> None:
    for spec in all_arms().values():
        marks = marks_of(type(spec.policy))
        assert {name for name, mark in marks.items() if mark != "science"} <= PLACE
        assert {mark for name, mark in marks.items() if name in PLACE} <= {"runtime"}
    runtime = {name for name, mark in marks_of(ArmSpec).items() if mark == RUNTIME.kind}
    assert runtime == {"name", "seeds"}


def test_parameters_change_the_identity_and_the_name_does_not() -> None:
    one = digest_of(science_of(ArmSpec(name="a", policy=PlanPrune())))
    assert digest_of(science_of(ArmSpec(name="b", policy=PlanPrune()))) == one
    assert digest_of(science_of(ArmSpec(name="a", policy=PlanPrune(apply=False)))) != one


def test_an_arm_survives_being_written_down() -> None:
    for spec in all_arms().values():
        assert parsed(ArmSpec, plain(spec)) == spec


def test_only_matched_arms_wait_for_other_runs() -> None:
    pilot = ((0.5, 9000.0),)
    assert arm("plan_prune").phase == 1
    matched = ArmSpec(name="m", policy=Deletion(), matched_to="plan_prune", pilot=pilot)
    assert matched.phase == 2
    assert ArmSpec(name="m", policy=Deletion(), budget=9000.0, pilot=pilot).phase == 1
    with pytest.raises(ValueError, match="not both"):
        ArmSpec(name="m", policy=Deletion(), matched_to="plan_prune", budget=9000.0, pilot=pilot)


def test_tools_of_an_arm() -> None:
    tools = {
        name: tuple(tool.name for tool in a.policy.tools)
        for name, a in all_arms().items()
        if a.policy.tools
    }
    assert tools["plan_prune_recall"] == ("prune_observations", "recall")
    for name in ("plan_prune", "sham_cleanup", "every_k", "discard_anytime"):
        assert tools[name] == ("prune_observations",)
    assert "random_prune" not in tools
    assert "full_history" not in tools


def test_the_42_deletions_have_the_papers_counts() -> None:
    policies = [spec.policy for spec in deletion_grid()]
    grid = [p for p in policies if isinstance(p, Deletion)]
    assert len({spec.name for spec in deletion_grid()}) == len(grid) == 42
    assert len({digest_of(science_of(p)) for p in grid}) == 42
    for scope in ("reasoning", "output", "both"):
        assert sum(p.scope == scope for p in grid) == 14
    assert sum(p.output_delay == p.reasoning_delay == 2 for p in grid) == 21
    assert sum(p.output_delay == p.reasoning_delay == 0 for p in grid) == 21
    assert sum(p.unit == "turn" for p in grid) == 24
    assert {p.rate for p in grid if p.unit == "turn"} == {0.25, 0.5, 0.75, 1.0}
    assert sum(p.unit == "token" for p in grid) == 18
    assert {p.rate for p in grid if p.unit == "token"} == {0.25, 0.5, 0.75}


def test_the_grids_config_is_the_grid() -> None:
    text = (CONF / "arms" / "grid42.yaml").read_text()
    assert text == grid_yaml(), "write conf/arms/grid42.yaml again from grid_yaml()"
    arms = [parsed(ArmSpec, data) for data in yaml.safe_load(text).values()]
    assert tuple(arms) == deletion_grid()
