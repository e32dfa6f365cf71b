"""GPU-hours are counted by our own clock, over all launches, killed workers included."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.records import usage
from pipeline.records.layout import Layout
from pipeline.records.usage import Usage, gpus_of_job, meter_usage, usage_of, used_gpu_hours
from pipeline.worker.budget import GpuBudget


def test_two_workers_hours_add_up_and_stay_when_they_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    monkeypatch.setattr(usage, "REPORT_EVERY_S", 0.02)
    with meter_usage(layout, "a", 2):
        time.sleep(0.2)
        assert [u.is_live for u in usage_of(layout)] == [True]
    with meter_usage(layout, "b", 1):
        time.sleep(0.1)
    seconds = {u.worker: u.seconds for u in usage_of(layout)}
    assert seconds["a"] >= 0.2
    assert used_gpu_hours(layout) == pytest.approx((2 * seconds["a"] + seconds["b"]) / 3600)
    assert not [u for u in usage_of(layout) if u.is_live]


def test_a_worker_that_is_killed_has_used_what_it_last_reported(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from pipeline.records import usage; "
        "from pipeline.records.layout import Layout; usage.REPORT_EVERY_S = 0.02; "
        "context = usage.meter_usage(Layout(Path(sys.argv[1])), 'k', 4); context.__enter__(); "
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as worker:
        deadline = time.monotonic() + 30
        while not [u for u in usage_of(Layout(tmp_path)) if u.seconds > 0.1]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        worker.kill()
    (left,) = usage_of(Layout(tmp_path))
    assert left.gpu_hours >= 4 * 0.1 / 3600
    assert not left.ended


def test_without_gpus_nothing_is_kept(tmp_path: Path) -> None:
    with meter_usage(Layout(tmp_path), "a", 0):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ({}, 0),
        ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,1,3"}, 3),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_a_jobs_gpus_are_those_that_it_was_given(env: dict[str, str], gpus: int) -> None:
    assert gpus_of_job(env) == gpus


def write(layout: Layout, worker: str, *, seconds: float, ended: bool, age_s: float = 0.0) -> None:
    usage._write(
        layout.usage_file(worker), Usage(worker=worker, gpus=2, seconds=seconds, ended=ended)
    )
    then = time.time() - age_s
    os.utime(layout.usage_file(worker), (then, then))


def test_the_cap_counts_what_live_workers_will_use_for_runs_they_have_begun(
    tmp_path: Path,
) -> None:
    layout = Layout(tmp_path)
    write(layout, "ended", seconds=3600, ended=True)
    write(layout, "killed", seconds=1800, ended=False, age_s=1000)
    write(layout, "live", seconds=1800, ended=False)

    def spent(cap: float | None) -> bool:
        return GpuBudget(layout, cap, lambda: 900.0).is_spent()

    # 2 + 1 + 1 GPU-hours are used, and the live worker's run takes half a one more.
    assert spent(4.5)
    assert not spent(4.6)
    assert not spent(None)


def test_the_folder_is_looked_at_now_and_then_only(tmp_path: Path) -> None:
    clock = [0.0]
    layout = Layout(tmp_path)
    budget = GpuBudget(layout, 1.0, lambda: 0.0, now_s=lambda: clock[0])
    assert not budget.is_spent()
    write(layout, "w", seconds=3600, ended=True)
    assert not budget.is_spent()
    clock[0] = 20.0
    assert budget.is_spent()


def test_attempts_that_have_ended_are_read_once(tmp_path: Path) -> None:
    layout, ended = Layout(tmp_path), dict[str, Usage]()
    write(layout, "old", seconds=3600, ended=True)
    write(layout, "new", seconds=60, ended=False)
    first = usage_of(layout, ended)
    layout.usage_file("old").write_text("no longer looked at")
    write(layout, "new", seconds=90, ended=False)
    again = usage_of(layout, ended)
    assert [u.seconds for u in first] == [60, 3600]
    assert [u.seconds for u in again] == [90, 3600]
