"""What a look decides: only when it is due, the same whenever it is taken, and rarely wrongly."""

import html
from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from pipeline.analysis.decisions import decisions
from pipeline.analysis.outcomes import ArmOutcomes, Group
from pipeline.analysis.publish import analyze_results
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep
from pipeline.spec.analysis import AnalysisPlan
from pipeline.spec.parse import SpecError, parsed
from pipeline.status import main as status

PLAN = AnalysisPlan(looks=(0.2, 0.4, 0.6, 0.8, 1.0))


def arm_of(name: str, resolved: np.ndarray) -> ArmOutcomes:
    done = ~np.isnan(resolved)
    nothing = np.full(resolved.shape, None, dtype=object)
    return ArmOutcomes(
        arm=name, seeds=tuple(range(resolved.shape[1])), planned=np.ones_like(done), done=done,
        resolved=resolved, resolved_or_limit=resolved, failure_class=nothing, run_id=nothing,
        metrics={},
    )  # fmt: skip


def group_of(control: np.ndarray, treatment: np.ndarray) -> Group:
    names = tuple(f"repo-{i:04d}" for i in range(len(control)))
    return Group(
        benchmark="b", model="m", agent="a", evidence="synthetic", instance_ids=names,
        repos=names, arms={
            "full_history": arm_of("full_history", control), "mask": arm_of("mask", treatment),
        },
    )  # fmt: skip


def drawn(difference: float, *, n: int = 500, seeds: int = 2, seed: int = 0) -> Group:
    """Runs with a true difference in rate; an arm's seeds agree often (correlation 0.5)."""
    rng = np.random.default_rng(seed)
    chance = rng.choice([0.05, 0.5, 0.95], p=[0.35, 0.2, 0.45], size=n)[:, None]

    def runs(p: np.ndarray) -> np.ndarray:
        shared, fresh = rng.random((n, 1)) < p, rng.random((n, seeds)) < p
        return np.where(rng.random((n, seeds)) < 0.5**0.5, shared, fresh).astype(float)

    hurt = chance > 0.3
    return group_of(runs(chance), runs(chance + difference * hurt / hurt.mean()))


def places(group: Group) -> list[int]:
    """The places of the instances in the order of the looks."""
    return [group.instance_ids.index(name) for name in PLAN.look_order(group.instance_ids)]


def test_leaving_instances_out_does_not_move_the_others_in_the_order_of_the_looks():
    names = [f"repo-{i}" for i in range(40)]
    order = PLAN.look_order(names)
    assert order != names
    assert sorted(order) == sorted(names)
    assert PLAN.look_order(names[7:]) == [name for name in order if name in names[7:]]


def test_a_look_is_due_only_when_all_its_instances_are_graded():
    group = drawn(0.0)
    name = PLAN.look_order(group.instance_ids)[0]
    first = group.instance_ids.index(name)
    resolved = group.arms["mask"].resolved.copy()
    resolved[first] = np.nan
    waiting = replace(group, arms={**group.arms, "mask": arm_of("mask", resolved)})
    (decision,) = decisions(waiting, PLAN)
    assert (decision.look, decision.stops, decision.n_complete) == (0, False, 0)
    assert decision.sentence == (
        "mask: no look is due; look 1 of 5 needs the first 100 instances graded; 0 so far, "
        f"next {name}"
    )


def test_a_look_decides_the_same_however_much_ran_ahead_of_it():
    group = drawn(-0.12)
    (late,) = decisions(group, PLAN)
    assert late.verdict == "worse"
    order = places(group)
    resolved = group.arms["mask"].resolved.copy()
    resolved[order[late.n_instances :]] = np.nan
    just_due = replace(group, arms={**group.arms, "mask": arm_of("mask", resolved)})
    (at_once,) = decisions(just_due, PLAN)
    assert replace(at_once, n_complete=late.n_complete, waits_for=late.waits_for) == late


def test_no_rate_is_named_while_an_arm_goes_on():
    resolved = drawn(0.0).arms["full_history"].resolved
    later = places(drawn(0.0))[100:]
    resolved[later] = np.nan
    (decision,) = decisions(group_of(resolved, resolved), PLAN)
    waiting = drawn(0.0).instance_ids[later[0]]
    said = f"mask: look 1 of 5, 100 instances: go on; the next look waits for {waiting}"
    assert decision.sentence == said


def test_results_that_come_in_any_order_give_the_looks_of_the_whole():
    group, rng = drawn(-0.03), np.random.default_rng(2)
    whole = decisions(group, PLAN)[0]
    resolved = group.arms["mask"].resolved
    missing, seen = rng.permutation(len(resolved)), []
    for n_missing in range(len(resolved), -1, -25):
        so_far = resolved.copy()
        so_far[missing[:n_missing]] = np.nan
        seen.append(decisions(group_of(group.arms["full_history"].resolved, so_far), PLAN)[0])
    # Each look is due once, says the same from then on, and the last word is the whole's.
    assert [d.look for d in seen] == sorted(d.look for d in seen)
    assert replace(seen[-1], n_complete=whole.n_complete, waits_for=whole.waits_for) == whole
    for earlier, later in pairwise(seen):
        if earlier.stops or earlier.look == later.look:
            same = replace(later, n_complete=earlier.n_complete, waits_for=earlier.waits_for)
            assert same == earlier


def test_an_instance_that_never_comes_is_named_and_no_look_goes_past_it():
    group = drawn(-0.12)
    lost = places(group)[150]
    resolved = group.arms["mask"].resolved.copy()
    resolved[lost] = np.nan
    (decision,) = decisions(group_of(group.arms["full_history"].resolved, resolved), PLAN)
    assert (decision.n_complete, decision.waits_for) == (150, group.instance_ids[lost])
    assert decision.look == 1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 12, 60])
@pytest.mark.parametrize("rates", [(0, 0), (1, 1), (1, 0), (0, 1)])
def test_every_look_at_few_or_like_pairs_decides_within_what_can_be(n: int, rates: tuple[int, int]):
    control, treatment = (np.full((n, 1), float(rate)) for rate in rates)
    (decision,) = decisions(group_of(control, treatment), PLAN)
    assert decision.stops
    assert decision.n_looks == len({ceil(n * share - 1e-9) for share in PLAN.looks})
    effect = decision.effect
    assert effect is not None
    assert -1 <= effect.low <= effect.value <= effect.high <= 1
    if rates[0] == rates[1]:
        assert effect.value == pytest.approx(0.0, abs=1e-3)


def test_equal_arms_are_not_worse_before_the_end():
    same = np.ones((500, 1))
    (decision,) = decisions(group_of(same, same), PLAN)
    assert decision.verdict == "not worse"
    assert decision.look < 5
    assert decision.effect is not None
    assert -PLAN.margin < decision.effect.low


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_a_true_loss_of_the_margin_is_called_not_worse_in_one_sweep_of_40(spending: str):
    plan = parsed(AnalysisPlan, {"looks": [0.2, 0.4, 0.6, 0.8, 1.0], "spending": spending})
    called = [
        decisions(drawn(-plan.margin, n=300, seed=seed), plan)[0].verdict == "not worse"
        for seed in range(300)
    ]
    assert np.mean(called) <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / 300)


def test_looks_that_do_not_end_at_the_end_are_refused_by_name():
    with pytest.raises(SpecError, match=r"looks: \[0.5, 0.9\] must increase"):
        parsed(AnalysisPlan, {"looks": [0.5, 0.9]})


def test_status_prints_the_decisions_of_planned_looks_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sweep = SyntheticSweep(n_instances=60, seeds=(0,), mean_steps=8)
    write_sweep(sweep, tmp_path / "planned", plan=AnalysisPlan(looks=(0.5, 1.0)))
    assert status([str(tmp_path / "planned"), "--decide"]) == 0
    printed = capsys.readouterr().out
    assert "plan_prune: look" in printed
    report = analyze_results(tmp_path / "planned").report.read_text()
    for line in printed.splitlines()[1:]:
        assert html.escape(line.strip(), quote=True).replace("&quot;", "&#34;") in report
    write_sweep(sweep, tmp_path / "unplanned")
    assert status([str(tmp_path / "unplanned"), "--decide"]) == 2
    assert "the plan has no looks" in capsys.readouterr().err
