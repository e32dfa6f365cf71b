"""docs/methods.md, Budgets: a matched arm waits for its donors and gets their mean."""

import json

import pytest

from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.records.rebuild import all_run_tables
from pipeline.records.states import run_states
from pipeline.records.tables import compact
from tests.worker.conftest import MakeSweep, StartWorker

MATCHED = (
    "seeds=[0,1]",
    "instances.ids=[toy__ledger-1]",
    "agent.step_limit=8",
    "~arms.plan_prune",
    "+arm@arms.matched=observation_mask",
    "+arms.matched.matched_to=full_history",
)
PILOT = "+arms.matched.pilot=[[1,1500.0],[3,4000.0],[10,90000.0]]"


def test_a_matched_arm_gets_its_donors_mean_and_says_so(
    make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    layout = make_sweep(*MATCHED, PILOT)
    worker = start_worker(layout)
    assert worker.wait(120) == 0
    assert not any(state.to_run for state in run_states(layout).values())
    compact(layout)
    runs = {(t.run["arm"], t.run["seed"]): t.run for t in all_run_tables(layout)}
    assert set(runs) == {(arm, seed) for arm in ("full_history", "matched") for seed in (0, 1)}
    for seed in (0, 1):
        donor = runs["full_history", 1 - seed]
        extra = json.loads(runs["matched", seed]["extra"])
        asked = extra["budget"]["requested_tokens"]
        assert asked == pytest.approx(donor["input_tokens"] / donor["n_calls"])
        assert extra["budget"]["donor_seeds"] == [1 - seed]
        assert extra["budget"]["capped_donor_seeds"] == [1 - seed]
        assert extra["budget"]["parameter"] == "keep_last_turns"
        assert extra["budget"]["match_on"] == "mean_prompt"
        assert runs["matched", seed]["phase"] == 2
        assert runs["matched", seed]["started_at"] >= donor["finished_at"]


def test_every_run_says_what_became_of_its_treatment(
    make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    layout = make_sweep("instances.ids=[toy__ledger-1]", "agent.step_limit=20")
    assert start_worker(layout).wait(120) == 0
    compact(layout)
    runs = {t.run["arm"]: json.loads(t.run["extra"])["treatment"] for t in all_run_tables(layout)}
    assert runs["full_history"]["verdict"] == "not_triggered"
    assert runs["plan_prune"]["verdict"] in ("treated", "declined")
    assert runs["plan_prune"]["n_asked"] > 0


def test_a_matched_arm_without_a_pilot_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="has no pilot"):
        sweep_spec(["+sweep=demo", *MATCHED[3:]])
