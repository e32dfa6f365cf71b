"""Instances with unequal numbers of seeds: every instance counts alike, whatever its seeds."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.study import opened_study
from pipeline.records.layout import Layout
from pipeline.records.plan import plan_bytes, read_plan
from pipeline.spec.seed_allocation import allocated_seeds

from .conftest import edit_table


@pytest.fixture
def allocated(sweep: Path) -> Path:
    """A sweep whose plan has the second seed on every other instance only."""
    layout = Layout(sweep)
    names = sorted({run.instance_id for run in read_plan(layout.plan)})
    plan = [r for r in read_plan(layout.plan) if r.seed == 0 or names.index(r.instance_id) % 2]
    layout.plan.write_bytes(plan_bytes(plan))
    kept = {run.run_id for run in plan}
    for table in ("runs", "grades"):
        edit_table(sweep, table, lambda rows: [row for row in rows if row["run_id"] in kept])
    return sweep


def test_a_run_weighs_one_over_the_instances_and_over_the_seeds_of_its_own(allocated: Path):
    layout = Layout(allocated)
    plan = read_plan(layout.plan)
    resolved = {
        row["run_id"]: row["resolved"]
        for row in pq.read_table(layout.table_file("grades")).to_pylist()
    }
    names = {run.instance_id for run in plan}

    def rate(arm: str) -> float:
        total = 0.0
        for name in names:
            own = [r for r in plan if r.arm == arm and r.instance_id == name]
            total += sum(resolved[r.run_id] / (len(names) * len(own)) for r in own)
        return total

    connection, study = opened_study(allocated)
    connection.close()
    assert study.gate.passes
    for contrast in study.groups[0].contrasts:
        assert contrast.solve is not None
        assert contrast.n_paired == len(names)
        assert contrast.solve.arm_rate == pytest.approx(rate(contrast.arm))
        assert contrast.solve.difference.value == pytest.approx(
            rate(contrast.arm) - rate("full_history")
        )


def test_seeds_by_a_prior_leave_the_rate_unbiased_and_its_error_smaller():
    rng = np.random.default_rng(6)
    rates = rng.beta(0.1, 0.1, size=200)
    names = [f"i{n:03d}" for n in range(200)]
    given = allocated_seeds(dict(zip(names, rates.tolist(), strict=True)), mean=2, most=8)
    own = np.array([given[name] for name in names])

    def estimates(seeds: np.ndarray) -> np.ndarray:
        has = np.arange(8) < seeds[:, None]
        draws = (rng.random((200, 8)) < rates[:, None] for _ in range(2000))
        return np.array([seed_means(np.where(has, draw, np.nan)).mean() for draw in draws])

    by_prior, alike = estimates(own), estimates(np.full(200, 2))
    assert own.sum() == 400
    assert by_prior.mean() == pytest.approx(rates.mean(), abs=4 * by_prior.std() / 2000**0.5)
    variance = rates * (1 - rates)
    expected = (variance / own).sum() / (variance / 2).sum()
    assert expected < 0.85
    assert by_prior.var() / alike.var() == pytest.approx(expected, rel=0.15)
