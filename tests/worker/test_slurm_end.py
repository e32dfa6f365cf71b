"""The end of a Slurm job: what a worker does on USR2 and on SIGTERM, with scontrol as a recorder.

A real Slurm is in tests/system; here only the worker's decisions are looked at.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.host.process import ChildGroup, start_group
from pipeline.host.slurm_job import job_end_unix_s, slurm_job
from pipeline.records.cut_short import cut_short
from pipeline.records.failure import NodeError
from pipeline.records.layout import Layout
from pipeline.records.usage import usage_of
from pipeline.serving.gpu import gpu_sample
from pipeline.spec.model import ModelSpec
from pipeline.worker.rollout_job import require_gpus
from tests.worker.conftest import SHORT, SLOW, MakeSweep, result_of
from tests.worker.test_faults import (
    ONE_SLOT,
    assert_nothing_left,
    in_flight,
    journaled_runs,
    wait_for,
)

LEFT_S = 600


@pytest.fixture
def job(tmp_path: Path) -> Iterator["FakeJob"]:
    fake = FakeJob(tmp_path)
    yield fake
    for child in fake.started:
        child.stop(0)


class FakeJob:
    """An environment as Slurm makes it, and a scontrol that writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked"
        self.log = folder / "worker.log"
        self.started: list[ChildGroup] = []
        self.programs = folder / "bin"
        self.programs.mkdir()
        (self.programs / "scontrol").write_text(
            f'#!/bin/sh\n[ "$1" = show ] && exit 1\necho "$@" >> {self.asked}\n'
        )
        (self.programs / "scontrol").chmod(0o755)

    def start(self, layout: Layout, *, left_s: float = LEFT_S, restarts: int = 0) -> ChildGroup:
        env = {
            **os.environ,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "1235",
            "SLURM_ARRAY_JOB_ID": "1230",
            "SLURM_ARRAY_TASK_ID": "4",
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_JOB_END_TIME": str(int(time.time() + left_s)),
        }
        argv = [sys.executable, "-m", "pipeline.worker.rollout_job", str(layout.root)]
        self.started.append(start_group([*argv, "--model", "sim"], env=env, log=self.log))
        return self.started[-1]

    @property
    def requests(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


EXPECTED = "agent.expected_wall_s=10"


def stopped_after_one_run(layout: Layout, worker: ChildGroup, number: int) -> None:
    wait_for(lambda: len(journaled_runs(layout)) >= 1, "one run was finished", worker)
    os.kill(worker.pid, number)
    assert worker.wait(60) == 0


def test_before_the_time_limit_a_worker_finishes_its_runs_and_requeues_its_own_task(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep(SHORT, SLOW, ONE_SLOT, EXPECTED)
    worker = job.start(layout)
    stopped_after_one_run(layout, worker, signal.SIGUSR2)
    assert job.requests == ["requeue 1230_4"]
    assert len(result_of(layout)) < 4
    assert_nothing_left(layout)


def test_a_terminated_worker_never_requeues(make_sweep: MakeSweep, job: FakeJob) -> None:
    layout = make_sweep(SHORT, SLOW, ONE_SLOT, EXPECTED)
    stopped_after_one_run(layout, job.start(layout), signal.SIGTERM)
    assert job.requests == []
    assert_nothing_left(layout)


def test_a_worker_that_published_nothing_does_not_requeue(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep("model.sim.latency_ms=4000", EXPECTED)
    worker = job.start(layout)
    wait_for(lambda: bool(in_flight(layout)), "a run was in flight", worker)
    os.kill(worker.pid, signal.SIGUSR2)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(60) == 0
    assert job.requests == []
    assert journaled_runs(layout) == []


def test_a_worker_that_was_requeued_often_enough_does_not_requeue(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep(SHORT, SLOW, ONE_SLOT, EXPECTED, "cluster.max_requeues=2")
    stopped_after_one_run(layout, job.start(layout, restarts=2), signal.SIGUSR2)
    assert job.requests == []


def test_no_run_is_started_that_would_not_end_before_the_job(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep(SHORT, "agent.expected_wall_s=500")
    worker = job.start(layout, left_s=LEFT_S)
    assert worker.wait(60) == 0
    assert journaled_runs(layout) == []
    assert "nothing started" in job.log.read_text()


def test_a_task_is_named_as_scontrol_wants_it_and_never_by_its_array() -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}
    assert slurm_job(env).job_id == "5_2"
    assert slurm_job({"SLURM_JOB_ID": "7"}).job_id == "7"
    assert slurm_job({}) is None


def slurm_that_says(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, squeue: str, scontrol: str = ""
) -> None:
    """Put a squeue and a scontrol on PATH that give these answers; empty: they fail."""
    for name, answer in (("squeue", squeue), ("scontrol", scontrol)):
        program = folder / name
        program.write_text(f"#!/bin/sh\n[ -n '{answer}' ] || exit 1\necho '{answer}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


SHOWN = "JobId=1 RunTime=00:10:00 TimeLimit={} TimeMin=N/A"


@pytest.mark.parametrize(
    ("squeue", "scontrol", "env", "end_unix_s"),
    [
        ("1:00:00", "", {}, 4600.0),
        ("UNLIMITED", "", {"SLURM_JOB_END_TIME": "2000"}, None),
        ("INVALID", SHOWN.format("01:00:00"), {}, 4000.0),
        ("NOT_SET", SHOWN.format("UNLIMITED"), {}, None),
        ("NOT_SET", SHOWN.format("Partition_Limit"), {"SLURM_JOB_END_TIME": "2000"}, 2000.0),
        ("", "", {"SLURM_JOB_END_TIME": "2000"}, 2000.0),
        ("INVALID", "", {"SLURM_JOB_END_TIME": "Unknown"}, 8200.0),
        ("", "", {}, 8200.0),
    ],
)
def test_an_end_that_slurm_does_not_know_is_not_taken_for_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    squeue: str,
    scontrol: str,
    env: dict[str, str],
    end_unix_s: float | None,
) -> None:
    slurm_that_says(monkeypatch, tmp_path, squeue=squeue, scontrol=scontrol)
    env = {"SLURM_JOB_ID": "1", **env}
    assert job_end_unix_s(env, limit_s=7200, now_unix_s=lambda: 1000.0) == end_unix_s


def test_outside_a_job_nobody_ends_us() -> None:
    assert job_end_unix_s({}, limit_s=60) is None


def test_a_run_that_its_job_cut_short_is_left_by_a_job_that_is_no_longer(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep(
        ONE_SLOT,
        "model.sim.latency_ms=60000",
        "agent.expected_wall_s=1",
        "cluster.signal_delay_s=30",
    )
    assert job.start(layout, left_s=42).wait(60) == 0
    (first,) = cut_short(layout)
    assert job.start(layout, left_s=40, restarts=1).wait(60) == 0
    assert set(cut_short(layout)) - {first}, "the second job began another run"
    begun = [json.loads(path.read_text()) for path in sorted(layout.cut_short.glob("*.json"))]
    assert sum(first in runs for runs in begun) == 1
    assert journaled_runs(layout) == []
    assert_nothing_left(layout)


def test_a_worker_begins_nothing_once_the_sweeps_gpu_hours_are_used(
    make_sweep: MakeSweep, job: FakeJob
) -> None:
    layout = make_sweep(SHORT, "model.n_gpus=2", "max_gpu_hours=5", "agent.expected_wall_s=10")
    layout.usage.mkdir()
    layout.usage_file("earlier").write_text(
        '{"worker": "earlier", "gpus": 2, "seconds": 9000.0, "ended": true}'
    )
    assert job.start(layout).wait(60) == 0
    assert journaled_runs(layout) == []
    assert "max_gpu_hours" in job.log.read_text()
    assert job.requests == []
    assert {usage.worker for usage in usage_of(layout)} > {"earlier"}
    assert_nothing_left(layout)


def test_a_job_without_a_gpu_says_so_before_a_server_is_started() -> None:
    model = ModelSpec(name="m", kind="vllm", repo="Org/Model", n_gpus=2)
    if gpu_sample({}) is None:
        with pytest.raises(NodeError, match="this job has no GPU, and the server of m needs 2"):
            require_gpus(model, {})
    require_gpus(model, {"SLURM_GPUS_ON_NODE": "2"})
    require_gpus(replace(model, n_gpus=0), {})
