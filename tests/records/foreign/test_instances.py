"""Runs are of the task whose text they hold, whatever their file is called."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import ingest as ingest_door
from pipeline.replay import main as replay_door
from tests.records.foreign.files import CASES, call, result, trajectory, write


def solved(task: str, *, prompt: int = 100, **more: object) -> dict[str, object]:
    return trajectory(call(1, f"cat {prompt}", prompt), result(1, "a"), task=task, **more)


def ingested(folder: Path, out: Path) -> list[tuple[str, int]]:
    ingest_door.main([str(folder), "--out", str(out), "--token-counter", "chars/3.6"])
    rows = pq.read_table(out / "tables/runs").to_pylist()
    return sorted((row["instance_id"], row["seed"]) for row in rows)


def test_files_of_one_name_with_two_tasks_are_two_instances(tmp_path: Path) -> None:
    for folder, task in (("a", "Mend the scale."), ("b", "Oil the hinge.")):
        write(tmp_path / "in" / folder / "last_mini_run.traj.json", solved(task))
    found = ingested(tmp_path / "in", tmp_path / "out")
    assert [name.rpartition("-")[0] for name, _ in found] == ["mend_the_scale", "oil_the_hinge"]
    assert [seed for _, seed in found] == [0, 0]


def test_two_recordings_of_one_task_are_replicates_wherever_they_lie(tmp_path: Path) -> None:
    for folder, prompt in (("a", 100), ("b", 120)):
        path = tmp_path / "in" / folder / "last_mini_run.traj.json"
        write(path, solved("Mend the scale.", prompt=prompt))
    found = ingested(tmp_path / "in", tmp_path / "out")
    assert [seed for _, seed in found] == [0, 1]
    assert len({name for name, _ in found}) == 1


def test_trials_of_a_harbor_job_are_named_by_their_task(tmp_path: Path) -> None:
    trials = {"scale__Ab1xQ": "Mend the scale.", "scale__Zz9qR": "Mend the scale."}
    for number, (trial, task) in enumerate(trials.items()):
        folder = tmp_path / "in" / trial
        data = solved(task, prompt=100 + number)
        write(folder / "agent" / "mini-swe-agent.trajectory.json", data)
        write(folder / "config.json", {"task": {"path": "scale"}})
        write(folder / "result.json", {"trial_name": trial})
    found = ingested(tmp_path / "in", tmp_path / "out")
    assert [seed for _, seed in found] == [0, 1]
    assert all(name.startswith("scale-") for name, _ in found)


def test_json_that_is_no_trajectory_is_passed_over_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in" / "config.json", {"a": 1})
    write(tmp_path / "in" / "run.json", solved("Mend the scale."))
    assert len(ingested(tmp_path / "in", tmp_path / "out")) == 1
    assert "left out" not in capsys.readouterr().err


def test_a_file_name_that_a_benchmark_gave_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "in" / "owner__name-12.traj.json", solved("Mend the scale."))
    assert ingested(tmp_path / "in", tmp_path / "out") == [("owner__name-12", 0)]


def test_one_id_with_two_task_texts_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in" / "1.traj.json", solved("Mend the scale.", instance_id="owner__n-1"))
    write(tmp_path / "in" / "2.traj.json", solved("Oil the hinge.", instance_id="owner__n-1"))
    assert ingested(tmp_path / "in", tmp_path / "out") == [("owner__n-1", 0)]
    said = capsys.readouterr().err
    assert "2.traj.json was left out" in said
    assert "another task text" in said
    write(tmp_path / "more" / "3.traj.json", solved("Turn the key.", instance_id="owner__n-1"))
    assert ingested(tmp_path / "more", tmp_path / "out") == [("owner__n-1", 0)]


def test_one_issue_under_two_prompts_is_one_task(tmp_path: Path) -> None:
    for number, around in enumerate(("Please solve:", "Work on this.\nBe quick.")):
        task = f"{around}\n<pr_description>\nThe scale is off.\n</pr_description>"
        data = solved(task, instance_id="owner__n-1", prompt=100 + number)
        write(tmp_path / "in" / f"{number}.traj.json", data)
    assert ingested(tmp_path / "in", tmp_path / "out") == [("owner__n-1", 0), ("owner__n-1", 1)]


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")
@pytest.mark.parametrize("case", ["harbor-job", "samename"])
def test_folders_that_were_met_in_the_wild_hold_two_instances(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ingested(CASES / case, tmp_path / "out")
    assert [seed for _, seed in found] == [0, 0]
    assert len({name for name, _ in found}) == 2
    capsys.readouterr()
    assert replay_door([str(CASES / case), "--json", "--processes", "1"]) == 0
    replayed = capsys.readouterr().out
    assert all(name in replayed for name, _ in found)
