"""Whatever happens to a worker, another ends with the same result, and nothing is left behind."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from pipeline.host.files import read_json
from pipeline.host.process import ChildGroup, run_command
from pipeline.records.frames import FrameKind
from pipeline.records.journal import scan
from pipeline.records.layout import Layout
from pipeline.records.states import States
from pipeline.records.tables import compact
from pipeline.worker import grade_job, rollout_job
from tests.worker.conftest import SHORT, SLOW, MakeSweep, StartWorker, launched, result_of

N_RUNS = 4
ONE_SLOT = "cluster.rollout.concurrency=1"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, ...]]:
    """The result of the sweep when nothing happens."""
    layout = launched(tmp_path_factory.mktemp("undisturbed") / "sweep", SHORT)
    rollout_job.main(str(layout.root), "sim", 0)
    grade_job.main(str(layout.root), 0)
    result = result_of(layout)
    assert len(result) == N_RUNS
    return result


def wait_for(condition: Callable[[], bool], what: str, child: ChildGroup | None = None) -> None:
    for _ in range(1200):
        if condition():
            return
        if child is not None and child.returncode is not None and not condition():
            pytest.fail(f"the worker ended (status {child.returncode}) before {what}")
        time.sleep(0.05)
    pytest.fail(f"waited in vain until {what}")


def in_flight(layout: Layout) -> list[str]:
    found: list[str] = []
    for path in layout.status.glob("*.json"):
        found += read_json(path)["in_flight"]
    return found


def n_calls_begun(layout: Layout) -> bool:
    return bool(in_flight(layout))


def journaled_runs(layout: Layout) -> list[str]:
    return [
        frame.head["run_id"]
        for path in layout.journal_paths()
        for frame in scan(path).frames
        if frame.kind == FrameKind.RUN
    ]


def finish(layout: Layout) -> dict[str, tuple[object, ...]]:
    """Run what is missing and grade it, in this process."""
    rollout_job.main(str(layout.root), "sim", 9)
    grade_job.main(str(layout.root), 9)
    return result_of(layout)


def assert_nothing_left(layout: Layout) -> None:
    """No process of the sweep, no sandbox, no live claim, no status file."""
    words = (str(layout.root), str(layout.root.parent / "scratch"))
    mine = psutil.Process().pid
    left = [
        p.info["cmdline"]
        for p in psutil.process_iter(["cmdline"])
        if p.pid != mine and any(w in " ".join(p.info["cmdline"] or ()) for w in words)
    ]
    assert left == []
    assert not list(layout.claims.glob("*.claim"))
    assert not list(layout.claims.glob(".*"))
    assert not list(layout.status.glob("*.json"))
    scratch = layout.root.parent / "scratch"
    assert not [p for p in scratch.rglob("sandbox-*") if p.is_dir()]


def servers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [p for p in children if "pipeline.serving.sim" in words_of(p)]


def words_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing for one that has just ended (a command's shell)."""
    with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
        return process.cmdline()
    return []


def test_a_worker_killed_in_mid_run_leaves_its_runs_to_the_next(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW)
    worker = start_worker(layout)
    wait_for(lambda: n_calls_begun(layout), "a run was in flight", worker)
    servers = servers_of(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    for server in servers:
        # It ends by itself: nobody is left to stop it.
        server.wait(timeout=20)
    assert finish(layout) == undisturbed
    assert sorted(journaled_runs(layout)) == sorted(undisturbed)
    assert_nothing_left(layout)


def test_a_terminated_worker_publishes_what_is_finished_and_gives_the_rest_back(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW, ONE_SLOT)
    worker = start_worker(layout)
    wait_for(lambda: len(journaled_runs(layout)) == 1, "one run was finished", worker)
    wait_for(lambda: n_calls_begun(layout), "the next was in flight", worker)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(30) == 0
    assert 1 <= len(journaled_runs(layout)) < N_RUNS
    assert_nothing_left(layout)
    assert finish(layout) == undisturbed
    assert sorted(journaled_runs(layout)) == sorted(undisturbed)


def test_a_drained_worker_finishes_what_is_in_flight_and_starts_nothing(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW, ONE_SLOT)
    worker = start_worker(layout)
    wait_for(lambda: n_calls_begun(layout), "a run was in flight", worker)
    begun = in_flight(layout)
    layout.drain_request.touch()
    assert worker.wait(60) == 0
    assert set(begun) <= set(journaled_runs(layout))
    assert len(journaled_runs(layout)) < N_RUNS
    assert_nothing_left(layout)
    layout.drain_request.unlink()
    assert finish(layout) == undisturbed


def test_a_worker_asked_to_drain_beforehand_starts_nothing(make_sweep: MakeSweep) -> None:
    layout = make_sweep(SHORT)
    layout.drain_request.touch()
    summary = rollout_job.main(str(layout.root), "sim", 0)
    assert summary["finished"] == 0
    assert not layout.journal_paths()
    assert_nothing_left(layout)


def test_runs_whose_server_was_killed_are_tried_again_and_counted_once(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW)
    worker = start_worker(layout)
    wait_for(lambda: n_calls_begun(layout), "a run was in flight", worker)
    for server in servers_of(worker.pid):
        server.kill()
    assert worker.wait(120) == 0
    states = States(layout)
    states.refresh()
    assert any(states.state_of(run_id).infra_attempts for run_id in undisturbed)
    grade_job.main(str(layout.root), 0)
    assert result_of(layout) == undisturbed
    assert_nothing_left(layout)


def test_two_workers_share_the_blocks_and_no_run_is_run_twice(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW)
    workers = [start_worker(layout, index=n) for n in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    assert sorted(journaled_runs(layout)) == sorted(undisturbed)
    grade_job.main(str(layout.root), 0)
    assert result_of(layout) == undisturbed
    assert_nothing_left(layout)


def test_a_worker_with_nothing_to_claim_starts_no_server(
    make_sweep: MakeSweep, undisturbed
) -> None:
    layout = make_sweep(SHORT)
    assert finish(layout) == undisturbed
    logs = sorted(layout.logs.iterdir())
    summary = rollout_job.main(str(layout.root), "sim", 1)
    assert summary["finished"] == 0
    assert sorted(layout.logs.iterdir()) == logs


def test_runs_lost_with_a_journal_are_run_again_although_their_block_is_marked_done(
    make_sweep: MakeSweep, undisturbed
) -> None:
    layout = make_sweep(SHORT)
    rollout_job.main(str(layout.root), "sim", 0)
    for path in layout.journal_paths():
        path.unlink()
    assert finish(layout) == undisturbed


FULL_DISK = """
set -e
mount -t tmpfs -o size=400k tmpfs {root}
cp -r {sweep}/. {root}
dd if=/dev/zero of={root}/ballast bs=1k 2>/dev/null || true
{python} -m pipeline.worker.rollout_job {root} --model sim 2> {sweep}/worker.err &
worker=$!
for n in $(seq 600); do
  grep -q -i "no space" {sweep}/worker.err && break
  kill -0 $worker 2> /dev/null || break
  sleep 0.1
done
rm {root}/ballast
wait $worker
cp -r {root}/journals/. {sweep}/journals
"""


def test_a_full_disk_is_waited_for_and_costs_nothing(
    make_sweep: MakeSweep, tmp_path: Path, undisturbed
) -> None:
    unshare = shutil.which("unshare")
    may_mount = unshare and run_command(
        [unshare, "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], timeout_s=10
    )
    if not may_mount or may_mount.returncode != 0:
        pytest.skip("needs unshare(1) and user namespaces to mount a small file system")
    layout = make_sweep(SHORT)
    root = tmp_path / "small-disk"
    root.mkdir()
    script = FULL_DISK.format(root=root, sweep=layout.root, python=sys.executable)
    done = run_command(["unshare", "-rm", "bash", "-c", script], timeout_s=120)
    assert done.returncode == 0, done.text
    assert "no space" in (layout.root / "worker.err").read_text().lower()
    grade_job.main(str(layout.root), 0)
    assert result_of(layout) == undisturbed


def test_an_unknown_model_is_named_with_those_that_exist(make_sweep: MakeSweep) -> None:
    with pytest.raises(ValueError, match=r"no model 'qwen'.*it has sim"):
        rollout_job.main(str(make_sweep(SHORT).root), "qwen", 0)


def test_a_hung_worker_that_comes_back_after_a_take_over_does_no_harm(
    make_sweep: MakeSweep, start_worker: StartWorker, undisturbed
) -> None:
    layout = make_sweep(SHORT, SLOW, "cluster.stale_s=2", "cluster.heartbeat_s=0.2")
    hung = start_worker(layout)
    wait_for(lambda: n_calls_begun(layout), "a run was in flight", hung)
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        assert start_worker(layout, index=1).wait(120) == 0
        assert set(journaled_runs(layout)) == set(undisturbed)
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    assert hung.wait(60) == 0
    compact(layout)
    run_ids = pq.read_table(layout.table_file("runs"))["run_id"].to_pylist()
    assert sorted(run_ids) == sorted(undisturbed)
    grade_job.main(str(layout.root), 0)
    assert result_of(layout) == undisturbed
    assert_nothing_left(layout)
