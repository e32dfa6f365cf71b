"""What a dry run says of the levers: the runs that each of them leaves, and the power."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline.analysis.looks import boundaries, power
from pipeline.launch import launch
from pipeline.planning.config import sweep_spec
from pipeline.planning.grid import planned_runs
from pipeline.planning.levers import SHARED_CALLS, expected_gpu_hours, levers, levers_text
from tests.planning.test_grid import DIGESTS, ROWS

ARMS = ("~arms.plan_prune", "~arms.no_plan", "+arm@arms.mask=observation_mask")


def levers_of(*words: str):
    spec = sweep_spec(["+sweep=demo", *words])
    return {lever.name: lever for lever in levers(spec, planned_runs(spec, ROWS, DIGESTS))}


def test_only_arms_that_can_begin_with_another_count_for_forks():
    fork = levers_of(*ARMS)["fork=true"]
    # Of three arms the mask alone; sham_cleanup has a tool that the reference has not.
    assert fork.low == fork.high == pytest.approx(1 - SHARED_CALLS["observation_mask"] / 3)
    assert not fork.is_on
    demo = levers_of("~arms.no_plan")["fork=true"]
    assert demo.high == pytest.approx(1 - SHARED_CALLS["plan_prune"] / 3)
    unknown = levers_of(*ARMS, "+arm@arms.purge=purge_errors")["fork=true"]
    assert unknown.low < unknown.high


def test_seeds_by_a_prior_leave_their_share_of_all_runs(tmp_path: Path):
    prior = tmp_path / "prior.json"
    prior.write_text(json.dumps({row["instance_id"]: 0.5 for row in ROWS}))
    words = (*ARMS, "seeds=[0,1,2]", f"prior={prior}", "mean_seeds=2")
    assert levers_of(*words)["mean_seeds=2"].low == pytest.approx(2 / 3)
    spec = sweep_spec(["+sweep=demo", *words])
    text = levers_text(spec, planned_runs(spec, ROWS, DIGESTS), 20.0)
    assert "without any lever about 30.0 GPU-hours" in text
    assert "mean_seeds=2: 20.0 (on)" in text


def test_a_dry_run_says_what_is_saved_and_which_power_remains(tmp_path: Path):
    console = Console(record=True, width=300)
    words = ["+sweep=demo", "dry_run=true", "analysis.looks=[0.5,1.0]", f"results={tmp_path}/r"]
    assert launch(words, console) == 0
    said = console.export_text()
    assert "looks, obrien_fleming: " in said
    assert "(on)" in said
    assert "all of them: " in said
    assert "were the arms equal, where 5%, 10%, 20% of 12 pairs differ" in said
    assert "; with the looks " in said


@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_the_power_of_looks_is_that_of_simulated_walks(spending):
    fractions, drift = [0.25, 0.5, 1.0], 2.8
    limits = boundaries(fractions, spending=spending)
    rng = np.random.default_rng(4)
    steps = np.diff([0.0, *fractions])
    walks = np.cumsum(rng.normal(drift * steps, np.sqrt(steps), size=(200_000, 3)), axis=1)
    crossed = (walks / np.sqrt(fractions) >= limits).any(axis=1)
    assert power(fractions, limits, drift=drift) == pytest.approx(crossed.mean(), abs=0.004)
    assert power(fractions, limits, drift=0.0) == pytest.approx(0.025, abs=1e-4)


CAPPED = (
    *("+sweep=demo", "~arms.plan_prune", "~arms.no_plan", "~arms.sham_cleanup"),
    *("+arm@arms.dedup=dedup", "model.n_gpus=4", "agent.expected_wall_s=3600", "dry_run=true"),
)
"""48 GPU-hours: 48 runs of an hour in 4 slots of 4 GPUs."""
LOOKS = "analysis.looks=[0.2,0.4,0.6,0.8,1.0]"


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ((), 48.0),
        (("fork=true",), 48 * (1 - SHARED_CALLS["dedup"] / 2)),
        ((LOOKS,), 48 * 0.85),
        (("fork=true", LOOKS), 48 * (1 - SHARED_CALLS["dedup"] / 2) * 0.85),
    ],
    ids=["no lever", "forks", "looks", "both"],
)
def test_the_cap_is_held_against_the_most_that_is_expected_with_the_levers(
    words: tuple[str, ...], most: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    everyday = [*CAPPED, *words, f"results={tmp_path}/r"]
    console = Console(record=True, width=300)
    assert launch([*everyday, f"max_gpu_hours={most + 0.1}"], console) == 0
    said = console.export_text()
    assert "about 48.0 GPU-hours" in said
    assert (f"{most:.1f} expected with forks and looks" in said) == bool(words)
    assert launch([*everyday, f"max_gpu_hours={most - 0.1}"], console) == 2
    refused = capsys.readouterr().err
    assert f"{most:.1f} GPU-hours are needed" in refused
    assert ("(48.0 without forks and looks)" in refused) == bool(words)


def test_what_looks_save_is_not_counted_on_for_the_rest_of_a_sweep():
    spec = sweep_spec(["+sweep=demo", *ARMS, LOOKS])
    runs = planned_runs(spec, ROWS, DIGESTS)
    assert expected_gpu_hours(spec, runs, 10.0, is_whole=True) == pytest.approx((5.3, 8.5))
    assert expected_gpu_hours(spec, runs[1:], 10.0, is_whole=False) == (10.0, 10.0)
