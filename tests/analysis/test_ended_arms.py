"""An arm that was ended is complete where a planned look ended it, and refused elsewhere."""

from pathlib import Path

import pytest

from pipeline.analysis.gate import InvalidSweepError
from pipeline.analysis.publish import analyze_results
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.drain import main as drain
from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from pipeline.spec.analysis import AnalysisPlan
from pipeline.status import main as status

from .conftest import edit_table

LOOKS = AnalysisPlan(looks=(0.25, 0.5, 0.75, 1.0))
N = 120


def made_sweep(results: Path, plan: AnalysisPlan) -> Path:
    """Write a sweep in which `harmful` is much worse and `harmless` is not."""
    sweep = SyntheticSweep(
        n_instances=N,
        seeds=(0,),
        mean_steps=8,
        arms={
            "full_history": ArmTruth(),
            "harmful": ArmTruth(solve=-0.5),
            "harmless": ArmTruth(),
        },
    )
    write_sweep(sweep, results, plan=plan)
    return results


def cut(results: Path, arm: str, *, instances_left: int) -> None:
    """Take away the runs of `arm` that a worker would not have made after a look."""
    order = LOOKS.look_order(sorted({run.instance_id for run in read_plan(Layout(results).plan)}))
    for table in ("runs", "grades"):
        gone = set(order[instances_left:])
        runs = {r.run_id for r in read_plan(Layout(results).plan) if r.arm == arm}
        edit_table(
            results,
            table,
            lambda rows, gone=gone, runs=runs: [
                row for row in rows if row["run_id"] not in runs or row["instance_id"] not in gone
            ],
        )


def decided(results: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert status([str(results), "--decide"]) == 0
    return capsys.readouterr().out


def test_a_look_says_the_same_again_however_the_sweep_went_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    results = made_sweep(tmp_path / "sweep", LOOKS)
    whole = decided(results, capsys)
    assert "harmful: look 1 of 4, 30 instances: stop, " in whole
    assert decided(results, capsys) == whole
    cut(results, "harmful", instances_left=30)
    assert decided(results, capsys) == whole


def test_an_arm_that_a_look_ended_passes_the_gate_and_the_report_says_when(tmp_path: Path):
    results = made_sweep(tmp_path / "sweep", LOOKS)
    cut(results, "harmful", instances_left=30)
    with pytest.raises(InvalidSweepError, match="90 of 360 planned runs have no result"):
        analyze_results(results)
    assert drain([str(results), "--arm", "harmful"]) == 0
    report = analyze_results(results).report.read_text()
    assert "was ended at" in report
    assert "90 runs before its last one: harmful: look 1 of 4, 30 instances: stop, " in report


@pytest.mark.parametrize("plan", [AnalysisPlan(), LOOKS])
def test_an_arm_that_was_ended_without_a_look_is_refused(tmp_path: Path, plan: AnalysisPlan):
    results = made_sweep(tmp_path / "sweep", plan)
    cut(results, "harmless", instances_left=25)
    assert drain([str(results), "--arm", "harmless"]) == 0
    with pytest.raises(InvalidSweepError, match="95 runs before its last one: no planned look"):
        analyze_results(results)


def test_the_reference_ends_only_after_the_arms_that_are_compared_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    results = made_sweep(tmp_path / "sweep", LOOKS)
    assert drain([str(results), "--arm", "full_history"]) == 2
    assert (
        "harmful, harmless are compared with, matched to or forked from full_history"
        in capsys.readouterr().err
    )
    assert drain([str(results), "--arm", "nothing"]) == 2
    assert "no arm 'nothing' in this sweep; it has full_history" in capsys.readouterr().err
    for arm in ("harmful", "harmless", "full_history"):
        assert drain([str(results), "--arm", arm]) == 0
