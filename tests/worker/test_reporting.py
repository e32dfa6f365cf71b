"""The status file: there while a worker works, gone when it has ended, however it ended."""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

from pipeline.host.claim_file import this_owner
from pipeline.host.files import read_json
from pipeline.records.layout import Layout
from pipeline.worker.reporting import Counts, StatusFile


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def status_file(layout: Layout, clock: Clock | None = None, worker: str = "w") -> StatusFile:
    return StatusFile(
        layout,
        this_owner(worker),
        role="rollout",
        model="sim",
        job=None,
        now_s=clock or Clock(),
    )


def test_a_report_says_who_where_and_what_is_in_flight(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    status_file(layout).report("working", Counts(finished=2), ["run-1"])
    status = read_json(layout.status_of("w"))
    assert (status["pid"], status["kind"], status["in_flight"]) == (os.getpid(), "local", ["run-1"])
    assert status["runs_per_s"] is None


def test_rates_are_those_of_the_last_minute(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    file = status_file(layout, clock)
    for second in range(0, 300, 10):
        clock.now_s = float(second)
        # Nothing in the first three minutes, then one run every ten seconds.
        file.report("working", Counts(finished=max(0, second - 180) // 10, tokens=0), [])
    status = read_json(layout.status_of("w"))
    assert status["runs_per_s"] == 0.1
    assert status["tokens_per_s"] == 0.0


def test_reports_between_the_beats_are_skipped_unless_the_phase_is_new(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    file = status_file(layout, clock)
    file.report("working", Counts(finished=1), [])
    clock.now_s = 1.0
    file.report("working", Counts(finished=2), [])
    assert read_json(layout.status_of("w"))["finished"] == 1
    file.report("stopping: drain", Counts(finished=2), [])
    assert read_json(layout.status_of("w"))["finished"] == 2


def report_and_die(root: Path) -> None:
    status_file(Layout(root), worker="victim").report("working", Counts(), ["run-1"])
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_worker_left_is_removed_by_the_next_on_its_machine(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    context = multiprocessing.get_context("forkserver")
    victim = context.Process(target=report_and_die, args=(tmp_path,))
    victim.start()
    victim.join(timeout=60)
    assert layout.status_of("victim").exists()
    status_file(layout, worker="living").report("working", Counts(), [])
    assert not layout.status_of("victim").exists()
    status_file(layout, worker="next")
    assert layout.status_of("living").exists()


def test_the_status_of_a_worker_elsewhere_is_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    elsewhere = replace(this_owner("far"), machine="other-boot/1", pid=1)
    file = StatusFile(layout, elsewhere, role="grading", model="", job=None)
    file.report("working", Counts(), [])
    status_file(layout)
    assert layout.status_of("far").exists()
    file.remove()
    assert not layout.status_of("far").exists()
