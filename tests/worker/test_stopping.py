"""Signals, drain requests and a vanished launcher as reasons to stop."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from pipeline.host.proctable import process_identity
from pipeline.records.plan import read_plan
from pipeline.records.states import run_states
from pipeline.worker import rollout_job
from pipeline.worker.stopping import Stop, StopWatch, launcher_of
from tests.worker.conftest import SHORT, MakeSweep


@pytest.fixture
def watch(tmp_path: Path):
    watch = StopWatch(tmp_path / "drain", wake=SimpleQueue())
    restore = watch.install()
    yield watch
    restore()


def test_there_is_no_reason_at_first(watch: StopWatch) -> None:
    assert watch.reason() is None


def test_signals_become_reasons_and_wake_the_loop(tmp_path: Path) -> None:
    wake: SimpleQueue[object] = SimpleQueue()
    watch = StopWatch(tmp_path / "drain", wake=wake)
    restore = watch.install()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert wake.get(timeout=5) is None
        assert watch.reason() is Stop.TIME_LIMIT
    finally:
        restore()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_is_more_urgent_than_anything(
    watch: StopWatch, tmp_path: Path, number: int
) -> None:
    (tmp_path / "drain").touch()
    assert watch.reason() is Stop.DRAIN
    os.kill(os.getpid(), signal.SIGUSR2)
    assert watch.reason() is Stop.TIME_LIMIT
    os.kill(os.getpid(), number)
    assert watch.reason() is Stop.TERMINATED
    assert watch.terminated


def test_signals_that_our_parent_blocked_are_heard_all_the_same(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    watch = StopWatch(tmp_path / "drain")
    restore = watch.install()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert watch.reason() is Stop.TIME_LIMIT
    finally:
        restore()


def test_a_continue_signal_is_no_reason(watch: StopWatch) -> None:
    os.kill(os.getpid(), signal.SIGCONT)
    assert watch.reason() is None


def test_the_old_handlers_come_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    StopWatch(tmp_path / "drain").install()()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_is_orphaned_once_its_launcher_is_gone(tmp_path: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = StopWatch(tmp_path / "drain", launcher=process_identity(launcher.pid))
    assert watch.reason() is None
    launcher.communicate(b"\n")
    assert watch.reason() is Stop.ORPHANED


def test_only_a_worker_of_the_local_executor_has_a_launcher() -> None:
    assert launcher_of({}) is None
    assert launcher_of({"SUBMITIT_EXECUTOR": "slurm"}) is None
    assert launcher_of({"SUBMITIT_EXECUTOR": "local"}) is not None


@pytest.mark.timeout(120)
def test_a_worker_without_a_run_in_flight_starts_one_though_its_server_is_full(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A full server makes room when runs end, and here none could.
    monkeypatch.setattr("pipeline.worker.sampling.may_start_another", lambda _: False)
    layout = make_sweep(SHORT, "~arms.plan_prune")
    rollout_job.main(str(layout.root), "sim", 0)
    states = run_states(layout)
    assert all(states[run.run_id].has_result for run in read_plan(layout.plan))
