"""The sweeps of arms compose, with the sizes and parameters they promise."""

from pipeline.arms.context_edit import ContextEdit
from pipeline.arms.line_pruning import LinePruning
from pipeline.arms.llm_summary import LlmSummary
from pipeline.arms.observation_mask import ObservationMask
from pipeline.planning.config import sweep_spec
from pipeline.spec.arm import ArmSpec
from pipeline.spec.deletion_grid import deletion_grid
from tests.context.arms import arm_names


def arms(sweep: str, *overrides: str) -> dict[str, ArmSpec]:
    return dict(sweep_spec([f"+sweep={sweep}", *overrides]).arms)


def test_the_arms_sweep_has_arms_made_to_act_on_toy() -> None:
    found = arms("arms")
    assert set(found) <= set(arm_names())
    # A simulated server has no line head, and line pruners need models of their own.
    assert not any(a.policy.needs_head or isinstance(a.policy, LinePruning) for a in found.values())
    edit, summary = found["context_edit"].policy, found["llm_summary"].policy
    assert isinstance(edit, ContextEdit)
    assert isinstance(summary, LlmSummary)
    assert edit.trigger_tokens == 6000
    assert summary.summarise_turns == 12


def test_the_grid_closes_at_9400_runs_on_two_agents() -> None:
    spec = sweep_spec(["+sweep=grid42"])
    seeds = [len(arm.seeds or spec.seeds) for arm in spec.arms.values()]
    assert set(spec.arms) == {arm.name for arm in deletion_grid()} | {"full_history"}
    assert set(spec.agents) == {"mini", "trae"}
    # Each agent: 42 deletions and five uncompressed runs.
    assert len(spec.agents) * sum(seeds) * (spec.instances.sample or 0) == 9400


def test_one_deletion_of_the_grid_can_be_changed_from_the_command_line() -> None:
    name = "delete_output_turn50_delayed"
    changed = arms("grid42", f"arms.{name}.policy.output_delay=4")[name]
    (original,) = [arm for arm in deletion_grid() if arm.name == name]
    assert changed != original


def test_budget_levels_differ_in_their_parameter_alone() -> None:
    found = arms("budget_matched")
    windows = [found[f"mask_{level}"].policy for level in ("low", "mid", "high")]
    assert [p.keep_last_turns for p in windows if isinstance(p, ObservationMask)] == [5, 10, 20]


def test_full500_arms_has_more_baselines_than_treatments() -> None:
    found = arms("full500_arms")
    assert found["full_history"].seeds == (0, 1, 2)
    assert found["plan_prune"].seeds is None
