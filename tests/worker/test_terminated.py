"""Slurm ends a job's commands with its worker: how they then look is nobody's result."""

import shutil
import signal
import time
from pathlib import Path

import pytest

from pipeline.host.files import read_json
from pipeline.host.process import descendants, process_identity, signal_process
from pipeline.records.frames import FrameKind
from pipeline.records.journal import scan
from pipeline.records.layout import Layout
from pipeline.worker import grade_job, rollout_job
from tests.worker.conftest import StartWorker, launched


def grade_classes(layout: Layout) -> dict[str, str]:
    return {
        frame.head["run_id"]: frame.head["grade_class"]
        for path in layout.journal_paths()
        for frame in scan(path).frames
        if frame.kind == FrameKind.GRADE and frame.head["grade_class"] != "grade_infra"
    }


def grading(layout: Layout) -> bool:
    return any(read_json(path)["in_flight"] for path in layout.status.glob("grade*.json"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep whose runs are finished and not graded."""
    layout = launched(
        tmp_path_factory.mktemp("finished") / "sweep", "instances.ids=[toy__ledger-1]"
    )
    rollout_job.main(str(layout.root), "sim", 0)
    return layout.root


@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_a_grading_that_was_ended_with_its_worker_says_nothing_of_the_patch(
    finished: Path, start_worker: StartWorker, tmp_path: Path, after_s: float
) -> None:
    expected_in, layout = Layout(tmp_path / "expected"), Layout(tmp_path / "sweep")
    shutil.copytree(finished, expected_in.root)
    shutil.copytree(finished, layout.root)
    grade_job.main(str(expected_in.root), 0)
    expected = grade_classes(expected_in)
    assert "resolved" in expected.values()

    worker = start_worker(layout, "grade_job")
    while not grading(layout):
        assert worker.alive()
        time.sleep(0.02)
    time.sleep(after_s)
    for pid in [*descendants(worker.pid), worker.pid]:
        identity = process_identity(pid)
        if identity is not None:
            signal_process(identity, signal.SIGTERM)
    # It may have graded all and be past its own handlers by then: nothing is left to say either.
    assert worker.wait(60) in (0, -signal.SIGTERM)
    assert grade_classes(layout).items() <= expected.items()
    grade_job.main(str(layout.root), 1)
    assert grade_classes(layout) == expected
