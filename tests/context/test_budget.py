"""docs/methods.md, Budgets: pilot budgets, donors over other seeds, clear refusals."""

import pytest

from pipeline.replaying.pilot import pilot_points
from pipeline.replaying.replay import Replayer, ReplaySettings
from pipeline.spec.arm import ArmSpec, MatchOn
from pipeline.spec.budget import (
    BudgetError,
    Measured,
    PilotPoint,
    budgeted,
    donor_budget,
    fitted,
    with_parameter,
)
from pipeline.spec.policies import policy_for
from tests.context.arms import arm
from tests.context.counters import WordCounter
from tests.context.driving import ran
from tests.context.scripts import read, rounds
from tests.context.test_replay import recording

PILOT = [
    PilotPoint(value=v, tokens=t) for v, t in [(1, 9000), (2, 12_000), (5, 18_000), (10, 24_000)]
]


def matched(match_on: MatchOn = "mean_prompt") -> ArmSpec:
    policy = arm("observation_mask").policy
    return ArmSpec(
        name="mask_matched",
        policy=policy,
        matched_to="plan_prune",
        match_on=match_on,
        pilot=tuple((p.value, p.tokens) for p in PILOT),
    )


def donor(instance_id: str, seed: int, scale: float = 1.0, *, capped: bool = False) -> Measured:
    return Measured(
        arm="plan_prune",
        instance_id=instance_id,
        seed=seed,
        mean_prompt=100 * scale,
        peak=200 * scale,
        removed_tokens=300 * scale,
        total_input=400 * scale,
        capped=capped,
    )


def test_the_pilots_nearest_value_meets_a_budget_and_says_what_it_gave() -> None:
    result = fitted(arm("observation_mask"), PILOT, budget=18_500)
    assert (result.parameter, result.value) == ("keep_last_turns", 5)
    assert (result.requested_tokens, result.achieved_tokens) == (18_500, 18_000)
    assert result.arm == arm("observation_mask", keep_last_turns=5)


def test_a_budget_out_of_the_pilots_reach_is_refused_with_the_reach() -> None:
    with pytest.raises(BudgetError, match=r"cannot meet 5,000 tokens .* 9,000 to 24,000"):
        fitted(arm("observation_mask"), PILOT, budget=5000)
    with pytest.raises(BudgetError, match="12,000 at 2 being the nearest"):
        fitted(arm("observation_mask"), PILOT, budget=14_000)


def test_a_budget_without_a_pilot_is_refused() -> None:
    with pytest.raises(
        BudgetError, match="there is no pilot: run or replay several values of rate"
    ):
        fitted(arm("deletion"), [], budget=9000)


def test_arms_that_decide_for_themselves_have_no_budget() -> None:
    for name in ("plan_prune", "full_history", "dedup"):
        with pytest.raises(BudgetError, match="no parameter that sets its budget"):
            fitted(arm(name), PILOT, budget=9000)


def test_a_parameter_keeps_its_type() -> None:
    assert with_parameter(arm("observation_mask"), 4.0) == arm(
        "observation_mask", keep_last_turns=4
    )
    assert with_parameter(arm("random_prune"), 0.3) == arm("random_prune", random_rate=0.3)


@pytest.mark.parametrize(
    ("match_on", "tokens"),
    [("mean_prompt", 200), ("peak", 400), ("removed_tokens", 600), ("total_input", 800)],
)
def test_the_budget_is_the_donors_mean_over_other_seeds(match_on: MatchOn, tokens: float) -> None:
    runs = [donor("a", 0, 50.0), donor("a", 1, 1.0), donor("a", 2, 3.0), donor("b", 1, 99.0)]
    budget = donor_budget(matched(match_on), runs, instance_id="a", seed=0)
    assert budget.tokens == tokens
    assert budget.seeds == (1, 2)


def test_capped_donors_are_flagged() -> None:
    runs = [donor("a", 1), donor("a", 2, capped=True)]
    assert donor_budget(matched(), runs, instance_id="a", seed=0).capped_seeds == (2,)


def test_a_runs_own_seed_is_no_donor() -> None:
    with pytest.raises(BudgetError, match="needs a finished run of plan_prune with another seed"):
        donor_budget(matched(), [donor("a", 0)], instance_id="a", seed=0)
    with pytest.raises(BudgetError, match="matched to no other arm"):
        donor_budget(arm("observation_mask"), [], instance_id="a", seed=0)


# --- in an arm -----------------------------------------------------------------------------------
def test_an_arm_with_a_budget_runs_with_the_pilots_value() -> None:
    policy = arm("observation_mask").policy
    pairs = tuple((p.value, p.tokens) for p in PILOT)
    spec = ArmSpec(name="m", policy=policy, budget=12_100.0, pilot=pairs)
    script = rounds(*[read(f"{k}.py") for k in range(6)])
    assert len(ran(spec, script).edits("mask")) == 4
    met = budgeted(spec)
    assert met is not None
    assert (met.requested_tokens, met.achieved_tokens) == (12_100.0, 12_000)


def test_a_matched_arm_takes_its_donors_budget_and_never_runs_without() -> None:
    met = budgeted(matched(), donors_tokens=1e6)
    assert met is not None
    assert met.value == 10
    with pytest.raises(BudgetError, match="none were handed over"):
        policy_for(matched(), seed=0, count_tokens=WordCounter(), context_length=1000)


def test_a_budget_without_a_pilot_is_no_valid_arm() -> None:
    policy = arm("observation_mask").policy
    with pytest.raises(ValueError, match="has no pilot"):
        ArmSpec(name="m", policy=policy, budget=9000.0)


def test_a_pilot_by_replay_grows_with_the_window() -> None:
    script = rounds(*[read(f"{k}.py", 100) for k in range(20)])
    recorded = recording(ran(arm("full_history"), script))
    replayers = [Replayer(recorded, WordCounter(), ReplaySettings())]
    points = pilot_points(arm("observation_mask"), [1, 5, 10, 20], replayers, "mean_prompt")
    tokens = [p.tokens for p in points]
    assert tokens == sorted(tokens)
    assert tokens[0] < tokens[2]
    with pytest.raises(ValueError, match="no removed tokens"):
        pilot_points(arm("observation_mask"), [1], replayers, "removed_tokens")
