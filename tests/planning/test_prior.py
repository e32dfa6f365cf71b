"""A difficulty prior: read from a file or a pilot, fixed in the plan at launch."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep
from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.planning.grid import planned_runs
from pipeline.planning.prior import prior_rates
from pipeline.records.layout import Layout
from tests.planning.test_grid import DIGESTS, ROWS

RATES = {row["instance_id"]: 0.5 if n < 4 else 1.0 for n, row in enumerate(ROWS)}


@pytest.fixture
def prior(tmp_path: Path) -> Path:
    (tmp_path / "prior.json").write_text(json.dumps(RATES))
    return tmp_path / "prior.json"


def test_instances_whose_outcome_is_open_have_more_seeds_in_every_arm(prior: Path):
    spec = sweep_spec(["+sweep=demo", "seeds=[0,1,2]", f"prior={prior}", "mean_seeds=1.5"])
    runs = planned_runs(spec, ROWS, DIGESTS)
    seeds = Counter((run.instance_id, run.arm) for run in runs)
    assert sum(seeds.values()) == 4 * 18
    expected = spec.seed_counts(list(RATES))
    assert all(n == expected[name] for (name, _), n in seeds.items())
    assert {expected[name] for name in RATES if RATES[name] == 0.5} == {2, 3}
    assert {run.seed for run in runs if expected[run.instance_id] == 1} == {0}


def test_without_a_number_of_seeds_the_prior_changes_no_plan(prior: Path):
    plans = [
        planned_runs(sweep_spec(["+sweep=demo", "seeds=[0,1]", *more]), ROWS, DIGESTS)
        for more in ([], [f"prior={prior}"])
    ]
    assert plans[0] == plans[1]


def test_seeds_or_a_regression_without_a_prior_are_refused():
    for words in ("mean_seeds=1.5", "analysis.adjust_for_prior=true"):
        with pytest.raises(ConfigError, match="need to know how hard instances are: prior=FILE"):
            sweep_spec(["+sweep=demo", words])


def test_an_instance_that_the_prior_lacks_is_named(tmp_path: Path):
    (tmp_path / "few.csv").write_text("instance_id,solve_rate\ntoy__repo-0,0.25\n")
    spec = sweep_spec(["+sweep=demo", f"prior={tmp_path / 'few.csv'}", "mean_seeds=1"])
    assert spec.difficulty == {"toy__repo-0": 0.25}
    with pytest.raises(ValueError, match="says nothing of 11 instances, such as toy__repo-1;"):
        planned_runs(spec, ROWS, DIGESTS)


@pytest.mark.parametrize("text", ['{"a": 1.5}', "[1]", "no JSON"])
def test_what_is_no_prior_is_refused_by_name(tmp_path: Path, text: str):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=r"prior=.*bad\.json"):
        sweep_spec(["+sweep=demo", f"prior={tmp_path / 'bad.json'}"])


def test_a_pilot_says_how_often_each_instance_was_solved(tmp_path: Path):
    write_sweep(SyntheticSweep(n_instances=20, seeds=(0,), mean_steps=6), tmp_path / "pilot")
    rates = prior_rates(str(tmp_path / "pilot"))
    rows = pq.read_table(Layout(tmp_path / "pilot").table_file("grades")).to_pylist()
    for name in {row["instance_id"] for row in rows}:
        solved = [row["resolved"] for row in rows if row["instance_id"] == name]
        assert rates.pop(name) == (sum(solved) + 0.5) / (len(solved) + 1)
    assert rates == {}
