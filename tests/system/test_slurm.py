"""The small sweep on a real Slurm does what it does on one machine, and asks before it submits."""

from pathlib import Path

import pytest

from pipeline import status
from tests.system.slurm_site import Cluster, Outcome, Sweeps, assert_nothing_left, wait_for

TWO_TASKS = ("cluster.rollout.n_tasks=2", "cluster.grading.n_tasks=1")

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


def test_a_sweep_on_slurm_has_the_outcome_of_a_local_one(
    cluster: Cluster,
    sweeps: Sweeps,
    undisturbed: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = sweeps(tmp_path)
    # As if launched from within a job: what that job was given is not ours.
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "7")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    assert sweep.launch() == 0
    assert "submitted rollout array" in capsys.readouterr().out
    submitted = list(sweep.layout.submissions.iterdir())
    # While its jobs live, another launch prints them and submits nothing.
    assert sweep.launch() == 2
    assert "nothing was submitted" in capsys.readouterr().err
    assert list(sweep.layout.submissions.iterdir()) == submitted
    # This cluster keeps no accounting: sacct has nothing to say, and nobody needs it.
    assert "accounting storage is disabled" in cluster.run("sacct").lower()
    assert sweep.finish() == undisturbed
    assert len(sweep.attempts()) == 3, "two rollout tasks and a grading task did it all"
    assert_nothing_left(sweep)


def test_the_demo_on_slurm_is_the_demo(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_slurm, here = sweeps(tmp_path / "slurm"), sweeps(tmp_path / "here")
    for sweep in (on_slurm, here):
        places = (f"results={sweep.layout.root}", f"cluster.scratch={sweep.scratch}")
        sweep.words = ["+sweep=demo", "seeds=[0]", "cluster=slurm", *TWO_TASKS, *places]
    assert on_slurm.launch() == 0
    of_here = here.launch_here()  # while the jobs run
    table = table_in(capsys.readouterr().out)
    assert len(of_here) == 48
    assert on_slurm.finish() == of_here
    assert table_in(capsys.readouterr().out) == table
    assert_nothing_left(on_slurm)


def table_in(printed: str) -> list[str]:
    """Return the paired table in what launch printed."""
    lines = printed.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("arm "))
    return lines[first : first + 6]


def test_arrays_are_split_as_the_site_wants_and_grading_waits_for_all(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = sweeps(tmp_path, "cluster.max_array_size=1", "cluster.rollout.gres=gpu:a100:1")
    assert sweep.launch() == 0
    rollouts = sweep.rollout_jobs()
    assert len({job.partition("_")[0] for job in rollouts}) == 2
    waiting = cluster.run("squeue", "--noheader", "--state=PENDING", "--format=%E")
    assert all(job in waiting for job in rollouts)
    assert sweep.finish() == undisturbed


def test_what_sbatch_would_refuse_is_found_before_anything_is_written(
    cluster: Cluster, sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweeps(tmp_path, "cluster.rollout.gres=gpu:h100:1")
    assert sweep.launch("cluster.grading.time_min=100000") == 2
    said = capsys.readouterr().err
    assert "rollout sim: sbatch says" in said
    assert "grading: sbatch says" in said
    assert not sweep.layout.root.exists()
    assert cluster.queue() == []


def test_a_drain_finishes_what_is_in_flight_and_a_launch_goes_on(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    from pipeline import drain

    sweep = sweeps(tmp_path, "cluster.rollout.n_tasks=1")
    assert sweep.launch() == 0
    sweep.wait_for_a_middle()
    assert sweep.situation().queue == {"pending": 1, "running": 1}
    assert sweep.situation().pending == {"Dependency": 1}
    flying = set(sweep.in_flight())
    assert drain.main([str(sweep.layout.root)]) == 0
    wait_for(lambda: not any("RUNNING" in job for job in cluster.queue()), "the worker stopped")
    assert flying <= set(sweep.journaled())
    assert sweep.n_open() > 0
    assert sweep.finish() == undisturbed
    assert_nothing_left(sweep)


def test_status_quotes_the_setup_line_that_ended_a_job(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweeps(tmp_path, "cluster.setup=['cd /nowhere/at/all']", grade_here=True)
    assert sweep.launch() == 0
    sweep.wait_ended()
    now = sweep.situation()
    assert not now.is_under_way
    (finding, rest) = now.findings
    assert finding.what.startswith("2 rollout jobs ended without results")
    assert "this line of cluster.setup failed: cd /nowhere/at/all" in finding.what
    assert rest.do == "launch again to run what is missing"
    capsys.readouterr()
    assert status.main([str(sweep.layout.root), "--watch"]) == 1
    assert "cd /nowhere/at/all" in capsys.readouterr().out
