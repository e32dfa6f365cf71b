"""Budgets from a pilot: requested beside achieved, refusals, and the file that a sweep reads."""

from pathlib import Path

import pytest
import yaml

from pipeline.planning.config import sweep_spec
from pipeline.planning.estimate import estimated
from pipeline.planning.preflight import problems
from pipeline.planning.prepare import prepare
from pipeline.replay import main
from pipeline.replaying.calibration import Pilot, levels_of, merged_text, pilot_of_runs
from pipeline.spec.arm import ArmSpec
from pipeline.spec.budget import BudgetError, PilotPoint, budgeted
from pipeline.spec.parse import parsed
from tests.context.arms import arm
from tests.context.test_replay import mini_file

POINTS = [PilotPoint(value=v, tokens=1000.0 * v) for v in (2, 4, 6, 8, 9)]


def pilot(reference: float | None = 10_000.0) -> Pilot:
    return Pilot(points=POINTS, reference=reference, source="test")


def test_each_level_gets_the_value_that_came_nearest_to_its_share_of_full_history() -> None:
    levels = levels_of(arm("observation_mask"), pilot(), [0.9, 0.6, 0.78])
    assert {name: (f.value, f.requested_tokens) for name, f in levels.items()} == {
        "low": (6, 6000.0),
        "mid": (8, 7800.0),
        "high": (9, 9000.0),
    }


@pytest.mark.parametrize(
    ("reference", "budgets", "message"),
    [
        (10_000.0, [0.1, 0.6, 0.9], "cannot meet 1,000 tokens within 10%"),
        (None, [0.5, 0.6, 0.9], "need full history in the pilot"),
        (None, [2000.0, 4000.0], r"give 3 budgets \(low, mid, high\), not 2"),
    ],
)
def test_budgets_that_cannot_be_met_are_refused(
    reference: float | None, budgets: list[float], message: str
) -> None:
    with pytest.raises(BudgetError, match=message):
        levels_of(arm("observation_mask"), pilot(reference), budgets)


def test_arms_in_the_file_meet_their_budgets_when_a_run_starts() -> None:
    levels = levels_of(arm("observation_mask"), pilot(), [2000, 4000, 6000])
    text = merged_text({"kept": {}}, "mask", levels, pilot(), "peak")
    assert text.startswith("# @package arms\n")
    arms = yaml.safe_load(text)
    assert list(arms) == ["kept", "mask_low", "mask_mid", "mask_high"]
    spec = parsed(ArmSpec, {**arms["mask_mid"], "name": "mask_mid"})
    assert (spec.budget, spec.match_on) == (4000, "peak")
    met = budgeted(spec)
    assert met is not None
    assert (met.parameter, met.value) == ("keep_last_turns", 4)


def test_the_command_calibrates_by_replay_and_says_what_it_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = mini_file(tmp_path / "a.traj.json", 14), tmp_path / "budgets.yaml"
    command = [str(source), "--pilot", "observation_mask", "--as", "mask", "--out", str(out)]
    values = ["--values", *map(str, range(1, 14)), "--token-counter", "chars/3.6"]
    assert main([*command, *values, "--budgets", "0.7", "0.8", "0.95"]) == 0
    assert capsys.readouterr().out.count("were asked") == 3
    assert set(yaml.safe_load(out.read_text())) == {"mask_low", "mask_mid", "mask_high"}
    assert main([*command, *values, "--match-on", "removed_tokens"]) == 2
    assert "replay measures no removed tokens" in capsys.readouterr().err


@pytest.fixture
def pilot_sweep(tmp_path: Path) -> Path:
    """A synthetic sweep with full history and a mask."""
    from pipeline.analysis.synthetic.folder import write_sweep
    from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep

    arms = {
        "full_history": ArmTruth(),
        "observation_mask": ArmTruth(policy="observation_mask", tokens=0.7),
    }
    write_sweep(SyntheticSweep(n_instances=6, seeds=(0,), arms=arms), tmp_path)
    return tmp_path


def test_the_runs_of_a_pilot_sweep_are_a_pilot_too(pilot_sweep: Path) -> None:
    found = pilot_of_runs(pilot_sweep, arm("observation_mask"), "total_input")
    (point,) = found.points
    assert point.value == 10
    assert found.reference is not None
    assert 0.5 < point.tokens / found.reference < 0.9
    with pytest.raises(BudgetError, match="no finished runs of deletion"):
        pilot_of_runs(pilot_sweep, arm("deletion"), "total_input")


def test_a_budget_matched_sweep_refuses_to_start_without_its_budgets(tmp_path: Path) -> None:
    sweep = prepare(sweep_spec(["+sweep=budget_demo", f"results={tmp_path}"]))
    found = {p.field: p.message for p in problems(sweep, estimated(sweep.lock.spec, sweep.runs))}
    assert set(found) == {"arms.mask_*", "arms.deletion_*"}
    assert "--pilot observation_mask --values V... --as mask" in found["arms.mask_*"]


def test_the_shipped_sweep_has_four_kinds_of_arms_at_three_levels() -> None:
    spec = sweep_spec(["+sweep=budget_matched"])
    assert set(spec.calibrated) == {
        f"{kind}_{level}"
        for kind in ("mask", "summary", "deletion", "lines")
        for level in ("low", "mid", "high")
    }
    assert set(spec.calibrated) <= set(spec.arms)
