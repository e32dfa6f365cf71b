"""Validity: a baseline cannot silently run unpruned, nor a treatment untreated."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from pipeline.replaying.treatment import Treatment, Verdict, treatment_of
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.trajectory import Edit
from tests.context.arms import all_arms, arm, few_arms
from tests.context.counters import WordCounter
from tests.context.driving import ran
from tests.context.scripts import Answers, Ran, Round, planctl, prunes, read, rounds, set_plan
from tests.context.strategies import answers, scripts

ARMS = all_arms()
FEW = sorted(few_arms())
WORK = rounds(set_plan(3), read("a.py"), read("b.py"), planctl(("complete", 1), ("start", 2)))


def made(run: Ran) -> list[Edit]:
    elisions = [e for e in run.standing.values() if e.reason == "elide"]
    seen = {id(e) for m in run.moments for e in m.before.values() if e.reason == "elide"}
    gone = [e for m in run.moments for e in m.before.values() if id(e) in seen]
    return [*elisions, *gone, *[e for m in run.moments for e in m.new]]


def treatment(spec: ArmSpec, run: Ran, edits: Sequence[Edit] | None = None) -> Treatment:
    policy = policy_for(spec, seed=0, count_tokens=WordCounter(), context_length=30_000)
    moments = [m.n_messages for m in run.moments]
    return treatment_of(policy, run.trajectory, moments, made(run) if edits is None else edits)


@pytest.mark.parametrize("name", FEW)
@given(script=scripts, answer=answers())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_under_its_own_arm_is_valid(name: str, script: list[Round], answer: Answers) -> None:
    found = treatment(ARMS[name], ran(ARMS[name], script, answer))
    failed_always = 0 < found.n_judged == found.n_pruner_errors
    assert found.is_valid is not failed_always


def test_a_treated_run_counts_its_edits_by_reason() -> None:
    result = treatment(arm("plan_prune"), ran(arm("plan_prune"), WORK, prunes(1, 2)))
    assert (result.verdict, result.by_reason, result.n_asked) == (Verdict.TREATED, {"prune": 2}, 1)


def test_a_model_that_prunes_nothing_declined() -> None:
    for name, answer in (("plan_prune", prunes()), ("sham_cleanup", prunes(1))):
        assert treatment(arm(name), ran(arm(name), WORK, answer)).verdict is Verdict.DECLINED


def test_a_run_without_an_occasion_was_not_triggered() -> None:
    for name in ("plan_prune", "observation_mask", "full_history"):
        run = ran(arm(name), WORK[:3])
        assert treatment(arm(name), run).verdict is Verdict.NOT_TRIGGERED


def test_a_treatment_that_never_happened_is_flagged() -> None:
    baseline = ran(arm("full_history"), [*WORK, *rounds(*[read(f"{k}") for k in range(12)])])
    for name in ("plan_prune", "observation_mask", "random_prune"):
        result = treatment(arm(name), baseline)
        assert result.verdict is Verdict.UNTREATED
        assert not result.is_valid


def test_a_baseline_that_was_pruned_is_flagged() -> None:
    pruned = ran(arm("plan_prune"), WORK, prunes(1))
    result = treatment(arm("full_history"), pruned)
    assert result.verdict is Verdict.UNEXPECTED
    assert result.by_reason == {"prune": 1}
