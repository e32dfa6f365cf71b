"""Harbor's task folders in containers: staged, solved by their solutions, and run as a sweep."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import grade, stage
from pipeline.benchmarks.harbor.format import FORMAT
from pipeline.benchmarks.harbor.tasks import task_folders, task_row
from pipeline.benchmarks.rows import image_reference
from pipeline.grading.evaluation import EvalSite
from pipeline.grading.verdict import Grade
from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.records.failure import GradeClass
from pipeline.records.layout import Layout
from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.images import ImageStore
from pipeline.worker.sandboxes import OpenSandboxes
from tests.benchmarks.harbor_tasks import BUGS, FILES, IMAGE, fill_image, write_tasks
from tests.system.apptainer.toy_image import PROJECT, REFERENCE, toy_image

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(900)]

Rows = Mapping[str, dict[str, Any]]
WRONG = """diff --git a/lines.txt b/lines.txt
new file mode 100644
--- /dev/null
+++ b/lines.txt
@@ -0,0 +1 @@
+4
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def rows(tasks: Path) -> Rows:
    return {folder.name: task_row(folder) for folder in task_folders(tasks)}


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
def sandboxes(root: Path, store: ImageStore) -> OpenSandboxes:
    return OpenSandboxes(ApptainerSandboxes(root, store, keep_free_bytes=1 << 30))


def gold_of(row: dict[str, Any], sandboxes: OpenSandboxes) -> str:
    return FORMAT.grader.gold(row, partial(sandboxes.start, row, "rollout"))


def graded(row: dict[str, Any], patch: str, sandboxes: OpenSandboxes) -> Grade:
    start = partial(sandboxes.start, row, "grade")
    return FORMAT.grader.grade(row, patch, start, EvalSite(), timeout_s=60)


@pytest.mark.parametrize("instance_id", [*BUGS, FILES])
def test_every_solution_solves_its_task_in_a_sandbox_of_its_own(
    instance_id: str, rows: Rows, sandboxes: OpenSandboxes
) -> None:
    row = rows[instance_id]
    grade = graded(row, gold_of(row, sandboxes), sandboxes)
    assert grade.grade_class is GradeClass.RESOLVED, (grade.reason, grade.test_output)
    assert grade.score == 1


@pytest.mark.parametrize("instance_id", BUGS)
def test_a_wrong_solution_is_not_solved(
    instance_id: str, rows: Rows, sandboxes: OpenSandboxes
) -> None:
    row = rows[instance_id]
    grade = graded(row, WRONG, sandboxes)
    assert grade.grade_class is GradeClass.UNRESOLVED, (grade.reason, grade.test_output)
    assert grade.score == 0


def test_a_task_that_is_solved_by_half_has_half_the_score(
    rows: Rows, sandboxes: OpenSandboxes
) -> None:
    grade = graded(rows[FILES], WRONG, sandboxes)
    assert (grade.grade_class, grade.score) == (GradeClass.UNRESOLVED, 0.5)


@pytest.mark.parametrize("instance_id", ["toy__ledger-1", "toy__ledger-2"])
def test_work_that_cannot_be_applied_is_the_runs_fault(
    instance_id: str, rows: Rows, sandboxes: OpenSandboxes
) -> None:
    grade = graded(rows[instance_id], "no patch at all\n", sandboxes)
    assert grade.grade_class is GradeClass.PATCH_FAILED


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 1", "ended without a reward"),
        ("echo nan > /logs/verifier/reward.txt", "left no number in reward.txt"),
        ("echo -1 > /logs/verifier/reward.txt", "gave {'reward': -1.0}"),
        ("kill -9 $$", "was killed"),
        (
            "echo 1 > /logs/verifier/reward.txt; : > /logs/verifier/reward.json",
            "left no number in reward.json",
        ),
    ],
)
def test_a_verifier_that_crashes_is_our_failure(
    script: str, reason: str, tasks: Path, sandboxes: OpenSandboxes, tmp_path: Path
) -> None:
    shutil.copytree(tasks / FILES, tmp_path / FILES)
    (tmp_path / FILES / "tests/test.sh").write_text(f"#!/bin/bash\n{script}\n")
    grade = graded(task_row(tmp_path / FILES), WRONG, sandboxes)
    assert grade.grade_class is GradeClass.GRADE_INFRA
    assert reason in grade.reason


def test_a_verifier_that_does_not_end_is_a_timeout_at_the_tasks_own_limit(
    tasks: Path, sandboxes: OpenSandboxes, tmp_path: Path
) -> None:
    shutil.copytree(tasks / FILES, tmp_path / FILES)
    (tmp_path / FILES / "tests/test.sh").write_text("#!/bin/bash\nsleep 60\n")
    row = {**task_row(tmp_path / FILES), "grade_timeout_s": 1.0}
    grade = graded(row, WRONG, sandboxes)
    assert (grade.grade_class, grade.reason) == (
        GradeClass.GRADE_TIMEOUT,
        "tests still ran after 1 s",
    )


def test_a_task_has_its_own_working_directory_variables_and_network(
    rows: Rows, root: Path, store: ImageStore
) -> None:
    factory = ApptainerSandboxes(
        root,
        store,
        network={"rollout": True, "grade": True},
        keep_free_bytes=1 << 30,
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
    tasks: Path, store: ImageStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    assert {g["resolved"] for g in grades} >= {True}
    assert all(g["score"] == float(g["resolved"]) for g in grades)
    assert (results / "report" / "report.html").is_file()
    capsys.readouterr()
    assert grade.main([str(results), "--gold"]) == 0
    assert f"gold patches: {len(BUGS)} of {len(BUGS)} resolved here" in capsys.readouterr().out
