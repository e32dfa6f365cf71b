"""Harbor's tasks in containers: graded as in tests/benchmarks, and run as a sweep."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import grade, stage
from pipeline.benchmarks.rows import image_reference
from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.records.layout import Layout
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.images import ImageStore
from pipeline.worker.sandboxes import OpenSandboxes
from tests.benchmarks.harbor_tasks import BUGS, FILES, IMAGE, fill_image
from tests.benchmarks.test_harbor_grading import (  # noqa: F401
    Open,
    rows,
    tasks,
    test_a_reward_that_was_there_before_the_tests_does_not_count,
    test_a_task_that_is_solved_by_half_has_half_the_score,
    test_a_verifier_that_crashes_is_our_failure,
    test_a_verifier_that_does_not_end_is_a_timeout_at_the_tasks_own_limit,
    test_a_wrong_solution_is_not_solved,
    test_every_solution_solves_its_task_in_another_sandbox_than_its_own,
    test_work_applies_to_files_that_the_image_holds_changed,
    test_work_that_cannot_be_applied_is_the_runs_fault,
)
from tests.system.apptainer.toy_image import PROJECT, REFERENCE, toy_image

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def store(rootfs: Path, tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    """Return a store with the image of all tasks."""
    work = tmp_path_factory.mktemp("image")
    shutil.copytree(rootfs, work / "rootfs", symlinks=True)
    fill_image(work / "rootfs")
    made = toy_image(work / "rootfs", work / "images").find(REFERENCE)
    assert made is not None
    store = ImageStore(work / "images", image_reference)
    store.write_record(replace(made, reference=IMAGE))
    return store


@pytest.fixture
def opened(root: Path, store: ImageStore) -> Open:
    sandboxes = OpenSandboxes(ApptainerSandboxes(root, store, keep_free_bytes=1 << 30))
    return lambda row: sandboxes.start(row, "grade")


def test_a_task_has_its_own_working_directory_variables_and_network(
    rows: Mapping[str, dict[str, Any]],  # noqa: F811
    root: Path,
    store: ImageStore,
) -> None:
    factory = ApptainerSandboxes(
        root, store, network={"rollout": True, "grade": True}, keep_free_bytes=1 << 30
    )
    seen = {}
    for network in (True, False):
        row = {**rows[FILES], "env": '{"COLOUR": "green"}', "network_rollout": network}
        box = factory.start(row, purpose="rollout")
        command = "pwd; echo $COLOUR; grep -c : /proc/net/dev"
        seen[network] = box.execute(command, timeout_s=20).output.split()
        box.stop()
    assert seen[False] == ["/srv/files", "green", "1"]
    assert seen[True][:2] == ["/srv/files", "green"]
    assert int(seen[True][2]) > 1


def test_a_sweep_of_tasks_is_staged_run_graded_and_reported(
    tasks: Path,  # noqa: F811
    store: ImageStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset, results = tmp_path / "tasks.parquet", tmp_path / "results"
    assert stage.main(["dataset", str(tasks), "--to", str(dataset)]) == 0
    words = ["+sweep=demo", "benchmark=harbor", f"dataset={dataset}", "agent=mini_tasks"]
    words += ["sandbox=apptainer", f"cluster.images={store.folder}", f"results={results}"]
    words += [f"cluster.scratch={tmp_path / 'scratch'}", "seeds=[0]"]
    words += [f"instances.ids=[{','.join(BUGS)}]", "~arms.sham_cleanup", "~arms.no_plan"]
    argv = [sys.executable, "-m", "pipeline.launch", *words]
    done = run_command(argv, timeout_s=600, env=environment(), cwd=PROJECT)
    assert done.returncode == 0, done.text
    layout = Layout(results)
    grades = pq.read_table(next(layout.table("grades").glob("*.parquet"))).to_pylist()
    assert len(grades) == 2 * len(BUGS)
    assert {g["harness_version"].partition(":")[0] for g in grades} == {"harbor 1"}
    assert True in {g["resolved"] for g in grades}
    assert all(g["score"] == float(g["resolved"]) for g in grades)
    assert (results / "report" / "report.html").is_file()
    capsys.readouterr()
    assert grade.main([str(results), "--gold"]) == 0
    assert f"gold patches: {len(BUGS)} of {len(BUGS)} resolved here" in capsys.readouterr().out
