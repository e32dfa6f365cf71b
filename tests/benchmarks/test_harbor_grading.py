"""What a task's own tests say of a run's work, in a file system of the task's own.

`tests/system/apptainer` has the same tests in containers.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.benchmarks.harbor.format import FORMAT
from pipeline.benchmarks.harbor.tasks import task_folders, task_row
from pipeline.grading.evaluation import EvalSite
from pipeline.grading.verdict import Grade
from pipeline.host.process import run_command
from pipeline.protocols import CommandResult, Sandbox
from pipeline.records.failure import GradeClass
from pipeline.sandbox.local import bubblewrap_works
from tests.benchmarks.harbor_tasks import BUGS, FILES, fill_image, write_tasks

Row = dict[str, Any]
Open = Callable[[Row], AbstractContextManager[Sandbox]]
"""Gives a fresh sandbox of a row."""
SYSTEM = ("bin", "sbin", "lib", "lib64")
WRONG = """diff --git a/lines.txt b/lines.txt
new file mode 100644
--- /dev/null
+++ b/lines.txt
@@ -0,0 +1 @@
+4
"""


@dataclass
class RootFolder:
    """Commands run in a root folder of their own, with this machine's programs."""

    root: Path
    workdir: str

    def execute(
        self, command: str, *, timeout_s: float, whole_after: bytes | None = None
    ) -> CommandResult:
        argv = ["bwrap", "--bind", str(self.root), "/", "--ro-bind", "/usr", "/usr"]
        argv += ["--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]
        argv += ["--setenv", "HOME", "/root", "--unsetenv", "TMPDIR", "--chdir", self.workdir]
        limit = 1 << 20
        argv += ["bash", "-c", command]
        done = run_command(argv, timeout_s=timeout_s, output_limit_bytes=limit)
        return CommandResult(
            output=done.text,
            returncode=-1 if done.timed_out else done.returncode,
            timed_out=done.timed_out,
            whole=None if whole_after is None else done.output,
        )

    def upload(self, data: bytes, path: str) -> None:
        target = self._outside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        with self._outside(path).open("rb") as file:
            return file.read(limit_bytes)

    def stop(self) -> None:
        shutil.rmtree(self.root)

    def _outside(self, path: str) -> Path:
        assert path.startswith("/")
        return self.root / path.lstrip("/")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def rows(tasks: Path) -> Mapping[str, Row]:
    return {folder.name: task_row(folder) for folder in task_folders(tasks)}


@pytest.fixture(scope="module")
def first_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    fill_image(folder)
    for name in ("tmp", "root", "etc", "dev", "proc", "usr"):
        (folder / name).mkdir()
    for name in SYSTEM:
        (folder / name).symlink_to(f"usr/{name}")
    return folder


@pytest.fixture
def opened(first_state: Path, tmp_path: Path) -> Open:
    if not bubblewrap_works():
        pytest.skip("bubblewrap is not here; `apt-get install bubblewrap` brings it")

    @contextlib.contextmanager
    def box(row: Row) -> Iterator[Sandbox]:
        root = tmp_path / "root"
        shutil.copytree(first_state, root, symlinks=True)
        sandbox = RootFolder(root, row["workdir"])
        yield sandbox
        sandbox.stop()

    return box


def graded(row: Row, patch: str, opened: Open) -> Grade:
    return FORMAT.grader.grade(row, patch, partial(opened, row), EvalSite(), timeout_s=60)


def with_tests(tasks: Path, folder: Path, script: str) -> Row:
    """Return the row of the task about files, graded by another script."""
    shutil.copytree(tasks / FILES, folder / FILES)
    (folder / FILES / "tests/test.sh").write_text(f"#!/bin/bash\n{script}\n")
    return task_row(folder / FILES)


@pytest.mark.parametrize("instance_id", [*BUGS, FILES])
def test_every_solution_solves_its_task_in_another_sandbox_than_its_own(
    instance_id: str, rows: Mapping[str, Row], opened: Open
) -> None:
    row = rows[instance_id]
    grade = graded(row, FORMAT.grader.gold(row, partial(opened, row)), opened)
    assert grade.grade_class is GradeClass.RESOLVED, (grade.reason, grade.test_output)
    assert grade.score == 1


@pytest.mark.parametrize("instance_id", BUGS)
def test_a_wrong_solution_is_not_solved(
    instance_id: str, rows: Mapping[str, Row], opened: Open
) -> None:
    grade = graded(rows[instance_id], WRONG, opened)
    assert grade.grade_class is GradeClass.UNRESOLVED, (grade.reason, grade.test_output)
    assert grade.score == 0


def test_a_task_that_is_solved_by_half_has_half_the_score(
    rows: Mapping[str, Row], opened: Open
) -> None:
    grade = graded(rows[FILES], WRONG, opened)
    assert (grade.grade_class, grade.score) == (GradeClass.UNRESOLVED, 0.5)


@pytest.mark.parametrize("instance_id", ["toy__ledger-1", "toy__ledger-2"])
def test_work_that_cannot_be_applied_is_the_runs_fault(
    instance_id: str, rows: Mapping[str, Row], opened: Open
) -> None:
    grade = graded(rows[instance_id], "no patch at all\n", opened)
    assert grade.grade_class is GradeClass.PATCH_FAILED


def test_work_applies_to_files_that_the_image_holds_changed(
    rows: Mapping[str, Row], opened: Open
) -> None:
    """Building an image may change files of the repository, and the diff is against the commit."""
    row = rows["toy__ledger-1"]

    @contextlib.contextmanager
    def changed(row: Row) -> Iterator[Sandbox]:
        with opened(row) as sandbox:
            spoil = "for file in $(git ls-files '*.py' ':!tests'); do echo '# built' >> $file; done"
            assert sandbox.execute(spoil, timeout_s=20).returncode == 0
            yield sandbox

    patch = FORMAT.grader.gold(row, partial(changed, row))
    assert "+# built" in patch
    grade = graded(row, patch, changed)
    assert grade.grade_class is GradeClass.RESOLVED, (grade.reason, grade.test_output)


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
    script: str, reason: str, tasks: Path, opened: Open, tmp_path: Path
) -> None:
    grade = graded(with_tests(tasks, tmp_path, script), WRONG, opened)
    assert grade.grade_class is GradeClass.GRADE_INFRA
    assert reason in grade.reason


def test_a_reward_that_was_there_before_the_tests_does_not_count(
    tasks: Path, opened: Open, tmp_path: Path
) -> None:
    row = with_tests(tasks, tmp_path, "exit 0")

    @contextlib.contextmanager
    def rewarded(row: Row) -> Iterator[Sandbox]:
        with opened(row) as sandbox:
            sandbox.upload(b"1", "/logs/verifier/reward.txt")
            yield sandbox

    assert graded(row, WRONG, rewarded).grade_class is GradeClass.GRADE_INFRA


def test_a_verifier_that_does_not_end_is_a_timeout_at_the_tasks_own_limit(
    tasks: Path, opened: Open, tmp_path: Path
) -> None:
    row = {**with_tests(tasks, tmp_path, "sleep 60"), "grade_timeout_s": 1.0}
    grade = graded(row, WRONG, opened)
    said = (grade.grade_class, grade.reason)
    assert said == (GradeClass.GRADE_TIMEOUT, "tests still ran after 1 s")
