"""Where savings come from, single repositories, medians, and behaviour on made-up sweeps."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.contrasts import Draws
from pipeline.analysis.medians import weighted_medians
from pipeline.analysis.outcomes import ArmOutcomes, groups_of
from pipeline.analysis.repositories import repository_sensitivity
from pipeline.analysis.strata import by_baseline_length, savings
from pipeline.analysis.study import Study, opened_study
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.analysis.tables import open_tables
from pipeline.records.layout import Layout
from pipeline.spec.analysis import AnalysisPlan

from .conftest import edit_table

QUICK = AnalysisPlan(resamples=500)
DRAWS = Draws(QUICK)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=12))
def test_a_weighted_median_is_the_median_of_the_repeated_values(pairs: list[tuple[int, int]]):
    values = np.array([float(v) for v, _ in pairs])
    weights = np.array([w for _, w in pairs])
    if weights.sum():
        expected = np.median(np.repeat(values, weights))
        assert weighted_medians(values, weights[None, :].astype(float)) == pytest.approx(expected)


def test_calls_times_mean_prompt_is_the_token_ratio_in_every_stratum(pristine: Path):
    with open_tables(pristine) as connection:
        (group,) = groups_of(connection)
    found = savings(group.arms["full_history"], group.arms["plan_prune"], DRAWS)
    assert found[0].stratum == "all tasks"
    for saving in found:
        if saving.n_pairs:
            assert saving.calls_ratio * saving.mean_prompt_ratio == pytest.approx(
                saving.tokens.value
            )
    assert found[0].n_pairs == 48 == sum(s.n_pairs for s in found[1:])


def made_arm(name: str, seeds: tuple[int, ...], runs: np.ndarray) -> ArmOutcomes:
    """An arm whose runs have these lengths; shape (instances, seeds)."""
    done = np.ones(runs.shape, dtype=bool)
    nothing = np.full(runs.shape, None, dtype=object)
    return ArmOutcomes(
        arm=name, seeds=seeds, planned=done, done=done, resolved=np.full(runs.shape, np.nan),
        resolved_or_limit=np.full(runs.shape, np.nan), failure_class=nothing, run_id=nothing,
        metrics={"n_steps": runs, "input_tokens": runs * 1000},
    )  # fmt: skip


def noisy(seeds: int, *, ratio: float, shared: np.ndarray, own: float) -> np.ndarray:
    """Runs whose noise is shared between arms, seed by seed, as after a common beginning."""
    rng = np.random.default_rng(int(100 * ratio))
    return ratio * shared[:, :seeds] * rng.lognormal(-(own**2) / 2, own, (len(shared), seeds))


def test_every_band_of_baseline_length_shows_the_true_ratio():
    """Dropped in the baseline only, the seed that sorts printed a true 1.17 as 0.98."""
    shared = np.random.default_rng(4).lognormal(3, 0.5, size=(3000, 3))
    control = made_arm("full_history", (0, 1, 2), noisy(3, ratio=1.0, shared=shared, own=0.05))
    sham = made_arm("sham", (0, 1, 2), noisy(3, ratio=1.17, shared=shared, own=0.05))
    bands = by_baseline_length(control, sham, DRAWS)
    assert sum(b.n_instances for b in bands) == 3000
    assert [b.tokens.value for b in bands] == pytest.approx([1.17] * 3, abs=0.01)


def test_a_seed_that_only_the_baseline_has_sorts_and_costs_the_comparison_nothing():
    shared = np.random.default_rng(5).lognormal(3, 0.5, size=(30, 3))
    control = made_arm("full_history", (0, 1, 2), shared)
    other = made_arm("other", (0, 1), 2 * shared[:, :2])
    bands = by_baseline_length(control, other, DRAWS)
    assert [b.tokens.value for b in bands] == pytest.approx([2.0] * 3)


@pytest.mark.parametrize("runs", [[[1.0]], [[1.0, 1.0]]])
def test_without_a_seed_of_its_own_there_is_no_band(runs: list[list[float]]):
    """A seed whose runs repeat the other's is no second one."""
    alike = np.array(runs) * np.arange(10, 40)[:, None]
    seeds = tuple(range(alike.shape[1]))
    control, other = made_arm("full_history", seeds, alike), made_arm("other", seeds, alike)
    assert by_baseline_length(control, other, DRAWS) == []


def test_leaving_one_repository_out_finds_the_one_that_carries_the_effect(sweep: Path):
    def carried(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        for row in rows:
            heavy = str(row["instance_id"]).startswith("repo01")
            row["repo"] = "heavy" if heavy else ("a", "b", "c")[len(str(row["patch"])) % 3]
            row["input_tokens"] = 50 if heavy and row["arm"] == "plan_prune" else 100
        return rows

    edit_table(sweep, "runs", carried)
    Layout(sweep).plan.unlink()
    with open_tables(sweep) as connection:
        (group,) = groups_of(connection)
    found = repository_sensitivity(group, arm="plan_prune", reference="full_history", draws=DRAWS)
    tokens = next(r for r in found if r.outcome == "input token ratio")
    assert (tokens.highest, tokens.highest_without) == (1.0, "heavy")


def test_one_repository_has_no_interval_over_repositories(sweep: Path):
    def one(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        for row in rows:
            row["repo"] = "only/one"
        return rows

    edit_table(sweep, "runs", one)
    Layout(sweep).plan.unlink()
    with open_tables(sweep) as connection:
        (group,) = groups_of(connection)
    for found in repository_sensitivity(
        group, arm="plan_prune", reference="full_history", draws=DRAWS
    ):
        assert found.n_repositories == 1
        assert np.isnan([found.lowest, found.clustered.low]).all()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    results = tmp_path_factory.mktemp("behaviour")
    write_sweep(SyntheticSweep(n_instances=60, seeds=(0, 1), seed=2), results, plan=QUICK)
    connection, found = opened_study(results)
    connection.close()
    return found


def test_more_rereading_arms_show_it_against_the_reference(study: Study):
    by_arm = {b.arm: b for b in study.groups[0].behaviour}
    mask = by_arm["observation_mask"].refetch_ratio
    sham = by_arm["sham_cleanup"].refetch_ratio
    assert mask is not None
    assert sham is not None
    assert mask.low > 1.5
    assert sham.low < 1 < sham.high
    assert by_arm["full_history"].source_visible == 1
    assert 0.2 < by_arm["observation_mask"].source_pruned < 0.6


def test_pruning_at_random_has_no_regret_beyond_age(study: Study):
    """The synthetic agent reads again whatever it read, pruned or not: the hazard ratio is 1."""
    regret = {b.arm: b.regret for b in study.groups[0].behaviour}
    assert regret["observation_mask"].low < 1 < regret["observation_mask"].high
    assert 0.8 < regret["observation_mask"].value < 1.25
    assert np.isnan(regret["full_history"].value)


def test_added_steps_are_re_fetches_and_others(study: Study):
    by_arm = {b.arm: b for b in study.groups[0].behaviour}
    mask, base = by_arm["observation_mask"], by_arm["full_history"]
    added = mask.added_steps
    assert base.added_steps is None
    assert added is not None
    assert added.total.value == pytest.approx(mask.steps_mean - base.steps_mean)
    assert added.total.value == pytest.approx(added.refetching.value + added.other.value)
    # The made-up agent reads one thing a step, so each re-fetch is a step.
    assert added.refetching.value == pytest.approx(mask.refetches - base.refetches)


def test_the_dose_table_says_who_was_treated(study: Study):
    by_arm = {b.arm: b for b in study.groups[0].behaviour}
    assert by_arm["full_history"].never_treated == 1
    assert by_arm["plan_prune"].never_treated < 0.2
    assert by_arm["plan_prune"].cleanups == 4
    assert by_arm["plan_prune"].plan_steps_completed == 5


def test_without_messages_behaviour_is_unknown_and_the_rest_stands(sweep: Path):
    for path in Layout(sweep).table("messages").glob("*.parquet"):
        path.unlink()
    connection, found = opened_study(sweep)
    connection.close()
    assert len(found.groups[0].behaviour) == 0
    assert len(found.groups[0].contrasts) == 3


def test_the_deletion_grids_table_has_a_row_a_configuration(tmp_path: Path):
    """42 configurations against one reference: solved, length, re-fetch and cost ratios of each."""
    grid = {
        f"delete_{scope}_{unit}{rate}_{timing}": ArmTruth(
            policy="deletion",
            parameters={
                "scope": scope,
                "unit": unit,
                "rate": rate / 100,
                "reasoning_delay": 2 if timing == "delayed" else 0,
                "output_delay": 2 if timing == "delayed" else 0,
            },
            tokens=1 - rate / 200,
            prunes=True,
            refetch=0.06 + rate / 1000,
        )
        for scope in ("reasoning", "output", "both")
        for unit, rates in (("turn", (25, 50, 75, 100)), ("token", (25, 50, 75)))
        for rate in rates
        for timing in ("delayed", "immediate")
    }
    assert len(grid) == 42
    sweep = SyntheticSweep(
        n_instances=12, seeds=(0,), mean_steps=15, arms={"full_history": ArmTruth(), **grid}
    )
    write_sweep(sweep, tmp_path, plan=QUICK)
    connection, found = opened_study(tmp_path)
    connection.close()
    (group,) = found.groups
    assert {c.arm for c in group.contrasts} == set(grid)
    assert all(
        c.solve is not None and c.solve.holm_p >= c.solve.test.p_value for c in group.contrasts
    )
    assert sum(b.refetch_ratio is not None for b in group.behaviour) == 42
    assert {b.arm for b in group.bills if b.ratio is not None} == set(grid)
    matched = {(m.dimension, m.level, m.against): m for m in group.matched}
    timing = matched[("timing", "immediate", "delayed")]
    rate = matched[("rate", "75%", "25%")]
    assert (len(timing.pairs), len(rate.pairs)) == (21, 12)
    assert timing.ratios["input_tokens"].low < 1 < timing.ratios["input_tokens"].high
    tokens = rate.ratios["input_tokens"]
    assert tokens.low < (1 - 0.375) / (1 - 0.125) < tokens.high
    # Every pair by itself: three quarters deleted leave fewer tokens than one quarter.
    assert rate.n_lower("input_tokens") + rate.n_higher("input_tokens") == 12
    assert rate.n_lower("input_tokens") == 12
    of_pairs = {(p.arm, p.against): p for p in rate.pairs}
    pair = of_pairs["delete_both_turn75_delayed", "delete_both_turn25_delayed"]
    one = {n: group.group.arms[n].mean_of("input_tokens").sum() for n in (pair.arm, pair.against)}
    expected = one[pair.arm] / one[pair.against]
    assert pair.ratios["input_tokens"].value == pytest.approx(expected)
    assert set(pair.ratios) == {
        "input_tokens", "n_steps", "refetches", "cost_flat", "cost_caching",
    }  # fmt: skip
    assert all(p.solve is not None for p in rate.pairs)
    solved = [p.solve.value for p in rate.pairs if p.solve is not None]
    assert rate.n_higher("solve") == sum(value > 0 for value in solved)
