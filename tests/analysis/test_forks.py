"""Forked runs in the analysis: what was sent, and noise that only fresh runs tell."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.analysis.bootstrap import resample_counts
from pipeline.analysis.forks import fork_tallies, fresh_only
from pipeline.analysis.outcomes import groups_of
from pipeline.analysis.rate_difference import rate_difference
from pipeline.analysis.replication import seed_noise
from pipeline.analysis.study import opened_study
from pipeline.analysis.tables import open_tables

from .conftest import edit_table


@pytest.fixture
def forked(sweep: Path) -> Path:
    """The runs of `plan_prune` on half of the instances share half of their tokens."""

    def fork(rows):
        for row in rows:
            if row["arm"] == "plan_prune" and int(row["instance_id"].rpartition("-")[2]) % 2:
                row |= {
                    "forked_from": "another",
                    "forked_at_call": 2,
                    "shared_input_tokens": row["input_tokens"] // 2,
                    "shared_output_tokens": 10,
                }
        return rows

    edit_table(sweep, "runs", fork)
    return sweep


def test_what_was_sent_is_told_apart_from_what_the_runs_come_to(forked: Path):
    with open_tables(forked) as connection:
        (group,) = groups_of(connection)
        found = {tally.arm: tally for tally in fork_tallies(connection, group)}
        rows = connection.execute(
            "SELECT n_calls, input_tokens, shared_input_tokens FROM runs WHERE arm = 'plan_prune'"
        ).fetchall()
    tally = found["plan_prune"]
    shared = [r for r in rows if r[2] is not None]
    assert 0 < tally.n_forked == len(shared) < tally.n_runs == len(rows)
    assert tally.n_calls - tally.n_calls_made == 2 * len(shared)
    assert tally.input_tokens == sum(r[1] for r in rows)
    assert tally.input_tokens_sent == sum(r[1] - (r[2] or 0) for r in rows)
    assert found["full_history"].n_forked == 0


def test_noise_between_seeds_is_that_of_fresh_runs(forked: Path, pristine: Path):
    connection, study = opened_study(forked)
    connection.close()
    (whole,) = study.groups
    arm = whole.group.arms["plan_prune"]
    kept = np.isnan(arm.metrics["shared_input_tokens"]).all(axis=1)
    assert 0 < kept.sum() < len(kept)
    of_kept = seed_noise(
        arm.resolved[kept], arm.metrics["input_tokens"][kept], arm.metrics["n_steps"][kept]
    )
    assert whole.noise["plan_prune"] == of_kept
    assert np.isnan(fresh_only(arm, arm.resolved)[~kept]).all()
    untouched, before = opened_study(pristine)
    untouched.close()
    assert whole.noise["full_history"] == before.groups[0].noise["full_history"]
    assert [c.solve for c in whole.contrasts] == [c.solve for c in before.groups[0].contrasts]


@pytest.mark.parametrize("shared", [0.0, 0.3, 0.9], ids=lambda share: f"{share:.0%} forked")
def test_intervals_over_instances_hold_the_truth_where_runs_share_their_beginnings(shared: float):
    """A run that never leaves the shared beginning has the reference's outcome."""
    n, n_seeds, sweeps, rng = 100, 2, 400, np.random.default_rng(7)
    counts = resample_counts(n, draws=1000, rng=rng)
    loss, held = 0.1, 0
    for _ in range(sweeps):
        # What an arm does to runs that act may depend on how hard the instance is.
        rate = rng.beta(1, 1, n)[:, None]
        control = (rng.random((n, n_seeds)) < rate).astype(float)
        own = (rng.random((n, n_seeds)) < rate * (1 - loss)).astype(float)
        arm = np.where(rng.random((n, n_seeds)) < shared, control, own)
        found = rate_difference(control.mean(axis=1), arm.mean(axis=1), counts)
        held += found.low <= -loss * 0.5 * (1 - shared) <= found.high
    assert held / sweeps >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / sweeps)
