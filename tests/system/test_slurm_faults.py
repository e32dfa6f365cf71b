"""Whatever happens to jobs and nodes on a real Slurm, the same launch ends with the same outcome.

After every fault the sweep is launched until it is done. The outcome must be that of an undisturbed
run on one machine, every planned run must be there exactly once, and nothing may be left running.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.host.process import run_command
from tests.system.slurm_site import (
    Cluster,
    Outcome,
    Sweep,
    Sweeps,
    assert_nothing_left,
    kill,
    wait_for,
)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

ONE_TASK = "cluster.rollout.n_tasks=1"


@pytest.fixture(scope="module", autouse=True)
def short_of_time(
    cluster: Cluster, undisturbed: Outcome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sweep]:
    """Return a sweep that was launched first, whose jobs may run for two minutes at a time.

    Slurm warns up to a minute too early, so this takes some minutes, while other tests run.
    """
    assert undisturbed
    sweep = Sweep(
        cluster,
        tmp_path_factory.mktemp("short_of_time"),
        ONE_TASK,
        "cluster.rollout.time_min=2",
        "cluster.rollout.nodelist=gpu2",
        "cluster.signal_delay_s=30",
        "agent.expected_wall_s=2",
        "model.sim.latency_ms=600",
        grade_here=True,
    )
    assert sweep.launch() == 0
    yield sweep
    sweep.clear()


def test_a_preempted_job_is_requeued_by_slurm_and_goes_on(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = launched(sweeps, tmp_path, "cluster.rollout.partition=scavenge", on="cpu1")
    sweep.wait_for_a_middle()
    urgent = ("--partition=urgent", "--nodelist=cpu1", "--exclusive", "--output=/dev/null")
    cluster.run("sbatch", *urgent, "--wrap=sleep 2")
    wait_for(lambda: restarts(cluster, sweep) >= 1, "the job was requeued")
    assert sweep.finish() == undisturbed
    assert any("-r1" in name for name in sweep.attempts())
    assert_nothing_left(sweep)


def test_a_cancelled_job_stays_cancelled_until_the_next_launch(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = launched(sweeps, tmp_path, grade_here=False)
    sweep.wait_for_a_middle()
    cluster.run("scancel", *sweep.rollout_jobs())
    sweep.wait_ended()
    assert not any("-r1" in name for name in sweep.attempts())
    finished = sweep.journaled()
    assert "have no result yet" in sweep.logs(), "the last grading task says what is missing"
    sweep.words.append("grade=false")
    sweep.grade_here = True
    assert sweep.finish() == undisturbed
    assert len(sweep.journaled()) == len(undisturbed)
    assert set(finished) <= set(sweep.journaled())
    assert_nothing_left(sweep)


def test_a_job_requeued_by_hand_goes_on(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = launched(sweeps, tmp_path)
    sweep.wait_for_a_middle()
    cluster.run("scontrol", "requeue", sweep.rollout_jobs()[0])
    assert sweep.finish() == undisturbed
    assert any("-r1" in name for name in sweep.attempts())
    assert_nothing_left(sweep)


def test_a_dead_node_is_replaced_while_its_orphan_still_runs(
    cluster: Cluster, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    # Not on the node of the sweep that is short of time.
    elsewhere = "cluster.rollout.exclude=gpu2"
    sweep = launched(sweeps, tmp_path, "model.sim.latency_ms=250", elsewhere)
    sweep.wait_for_a_middle()
    (job,) = sweep.rollout_jobs()
    node = cluster.run("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    (orphan,) = sweep.workers()
    for process in [psutil.Process(cluster.slurmd_pid(node)), *slurms_own(job, orphan)]:
        kill(process)
    wait_for(lambda: f"{node} down" in ",".join(cluster.broken_nodes()), "the node is down")
    wait_for(lambda: restarts(cluster, sweep) >= 1, "the job was requeued")
    assert orphan.is_running(), "what the node was doing goes on"
    # Until it ends it keeps its claims, and launches beside it find nothing to do.
    orphan.wait(timeout=120)
    cluster.start_node(node)
    wait_for(lambda: not cluster.broken_nodes(), "the node is back")
    assert sweep.finish() == undisturbed
    assert len(sweep.journaled()) == len(undisturbed), "no run was started twice"
    assert_nothing_left(sweep)


def test_a_killed_worker_leaves_its_runs_to_the_next_launch(
    sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    sweep = launched(sweeps, tmp_path)
    sweep.wait_for_a_middle()
    (worker,) = sweep.workers()
    kill(worker)
    sweep.wait_ended()
    assert sweep.n_open() > 0
    assert sweep.finish() == undisturbed
    assert_nothing_left(sweep)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of its own, of 240 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = run_command(
        ["mount", "-t", "tmpfs", "-o", "size=240m", "tmpfs", str(folder)], timeout_s=20
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.text}")
    yield folder
    run_command(["umount", "-l", str(folder)], timeout_s=20)


def test_results_wait_for_a_shared_folder_that_was_full_for_a_while(
    small_disk: Path, sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    node_disk = f"cluster.scratch={tmp_path}/scratch"
    sweep = launched(sweeps, small_disk, node_disk, "cluster.rollout.n_tasks=2")
    sweep.scratch = tmp_path / "scratch"
    sweep.wait_for_a_middle()
    with full(small_disk):
        before = len(sweep.journaled())
        # The runs in flight end meanwhile, with nowhere to go, and none can be started.
        wait_for(lambda: not sweep.sandboxes(), "the runs in flight have ended")
        assert len(sweep.workers()) == 2
        assert len(sweep.journaled()) == before
    assert sweep.finish() == undisturbed
    # The workers waited: none had to be started again.
    assert sum("rollout" in name for name in sweep.attempts()) == 2, sweep.logs()
    assert_nothing_left(sweep)


SKEW = """
import os, time
hours = {"0": 2, "1": -2}.get(os.environ.get("SLURM_ARRAY_TASK_ID"), 0)
real = time.time
time.time = lambda: real() + 3600 * hours
"""


def test_clocks_that_differ_by_hours_neither_steal_claims_nor_end_jobs(
    sweeps: Sweeps, undisturbed: Outcome, tmp_path: Path
) -> None:
    folder = tmp_path / "skew"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SKEW)
    skewed = f"cluster.setup=['export PYTHONPATH={folder}']"
    sweep = launched(sweeps, tmp_path, skewed, "cluster.rollout.n_tasks=2")
    assert sweep.finish() == undisturbed
    assert len(sweep.journaled()) == len(undisturbed), "no run was started twice"
    assert sum("rollout" in name for name in sweep.attempts()) == 2
    assert_nothing_left(sweep)


def test_a_job_short_of_time_drains_requeues_itself_and_ends_with_everything_done(
    undisturbed: Outcome, short_of_time: Sweep
) -> None:
    assert short_of_time.finish() == undisturbed
    attempts = [name for name in short_of_time.attempts() if name.startswith("rollout")]
    assert len(attempts) > 1
    assert len({re.sub(r"-r\d+$", "", name) for name in attempts}) == 1, "one task, run again"
    assert "'requeued': True" in short_of_time.logs()
    assert len(short_of_time.journaled()) == len(undisturbed), "nothing was lost to the limit"
    assert_nothing_left(short_of_time)


# --- parts ---
@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """Leave no space in the file system of `folder`, for the time of the context."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    try:
        yield
    finally:
        filler.unlink()


def launched(
    sweeps: Sweeps, folder: Path, *overrides: str, on: str | None = None, grade_here: bool = True
) -> Sweep:
    """Launch the sweep with one rollout task, on one node if told."""
    pinned = [f"cluster.rollout.nodelist={on}"] if on else []
    sweep = sweeps(folder, ONE_TASK, *overrides, *pinned, grade_here=grade_here)
    assert sweep.launch() == 0
    return sweep


def restarts(cluster: Cluster, sweep: Sweep) -> int:
    """Return how often Slurm has started the rollout job again."""
    shown = cluster.run("scontrol", "show", "job", sweep.rollout_jobs()[0])
    found = re.search(r"Restarts=(\d+)", shown)
    return int(found[1]) if found else 0


def slurms_own(job: str, worker: psutil.Process) -> list[psutil.Process]:
    """Return Slurm's processes of a job: step daemons, batch script and srun, not the worker."""
    daemons = [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"slurmstepd: [{job}." in " ".join(process.info["cmdline"] or ())
    ]
    scripts = [
        process
        for daemon in daemons
        for process in daemon.children(recursive=True)
        if process.name() in {"bash", "slurm_script", "srun"} and process.pid != worker.pid
    ]
    of_worker = {process.pid for process in worker.children(recursive=True)}
    return [*daemons, *(process for process in scripts if process.pid not in of_worker)]
