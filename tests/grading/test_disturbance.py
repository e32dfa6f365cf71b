"""A test run that something ended from outside is our failure and no verdict on the patch."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.grading.cache import GradeCache, GradeKey
from pipeline.grading.harness import grade_patch
from pipeline.grading.verdict import Grade
from pipeline.records.failure import GradeClass
from pipeline.sandbox.limits import Limits
from pipeline.sandbox.local import LocalSandboxes
from tests.grading.conftest import FolderSandbox

PatchOf = Callable[[Callable[[Path], None]], str]
KEY = GradeKey("i", "sha", None, "5")


def greet(folder: Path) -> None:
    (folder / "greeting.txt").write_text("hello\n")


def with_tests(row: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the row with another test command."""
    assert "bash tests.sh" in row["eval_script"]
    return {**row, "eval_script": row["eval_script"].replace("bash tests.sh", command)}


def assert_ours(grade: Grade, said: str) -> None:
    assert grade.grade_class is GradeClass.GRADE_INFRA, grade.test_output
    assert grade.resolved is None
    assert said in grade.reason
    cache = GradeCache()
    cache.add(KEY, grade)
    assert cache.get(KEY) is None


@pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("INT", 130)])
def test_a_killed_test_command_is_our_failure_with_its_signal(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf, name: str, code: int
) -> None:
    killed = with_tests(row, f"bash -c 'echo PASSED t.py::hello; kill -{name} $$'")
    grade = grade_patch(sandbox, killed, patch_of(greet), timeout_s=60)
    assert_ours(grade, f"the test command was killed (SIG{name}, exit status {code})")
    assert grade.test_exit_code == code
    assert "PASSED t.py::hello" in grade.test_output


def test_a_runner_that_reports_its_killed_child_is_our_failure(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    """Python's `sys.exit(process.returncode)` makes 247 of a child's SIGKILL."""
    child = '["bash", "-c", "kill -9 $$"]'
    runner = f"python3 -c 'import subprocess, sys; sys.exit(subprocess.call({child}))'"
    grade = grade_patch(sandbox, with_tests(row, runner), patch_of(greet), timeout_s=60)
    assert_ours(grade, "SIGKILL, exit status 247")


def test_a_script_that_is_killed_itself_is_our_failure(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    killed = with_tests(row, "kill -9 $$")
    grade = grade_patch(sandbox, killed, patch_of(greet), timeout_s=60)
    assert_ours(grade, "the evaluation script was killed (SIGKILL, exit status 137)")


def test_an_installation_that_is_killed_is_our_failure_even_where_the_tests_pass(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    script = row["eval_script"].replace("bash tests.sh", "bash tests.sh", 1)
    first, rest = script.split("\n", 1)
    killed = {**row, "eval_script": f"{first}\nbash -c 'kill -9 $$'\n{rest}"}
    grade = grade_patch(sandbox, killed, patch_of(greet), timeout_s=60)
    assert_ours(grade, "of the evaluation script was ended from outside (Killed)")


@pytest.mark.parametrize(
    ("command", "code"),
    [("bash -c 'kill -SEGV $$'", 139), ("bash -c 'kill -ABRT $$'", 134), ("(exit 255)", 255)],
)
def test_a_crash_of_the_tests_is_the_patchs(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf, command: str, code: int
) -> None:
    grade = grade_patch(sandbox, with_tests(row, command), patch_of(greet), timeout_s=60)
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.test_exit_code == code


def test_what_tests_print_cannot_pass_for_a_kill(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    loud = with_tests(row, "bash tests.sh; echo '>>>>> Test Exit Code: 137'; bash tests.sh")
    grade = grade_patch(sandbox, loud, patch_of(greet), timeout_s=60)
    # The official harness takes the first status that it finds, and nothing for a kill.
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.test_exit_code == 0


@pytest.mark.parametrize(
    ("command", "limits", "said"),
    [
        (
            "python3 -c 'x = bytearray(300 << 20); import time; time.sleep(30)'",
            Limits(memory_bytes=100 << 20),
            "memory limit (cluster.sandbox_memory_mb)",
        ),
        (
            "for i in {1..60}; do sleep 30 & done; wait",
            Limits(processes=40),
            "limit of processes (cluster.pids_limit)",
        ),
    ],
    ids=["memory", "processes"],
)
def test_tests_over_a_limit_of_our_sandbox_are_our_failure(
    repository: Path,
    tmp_path: Path,
    row: dict[str, Any],
    patch_of: PatchOf,
    command: str,
    limits: Limits,
    said: str,
) -> None:
    def materialise(_row: Mapping[str, Any], folder: Path) -> None:
        shutil.copytree(repository, folder, dirs_exist_ok=True)

    box = LocalSandboxes(tmp_path / "root", materialise, limits=limits).start(row, purpose="grade")
    try:
        grade = grade_patch(box, with_tests(row, command), patch_of(greet), timeout_s=60)
    finally:
        box.stop()
    assert_ours(grade, said)


def test_a_complete_log_without_any_status_is_counted_apart(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    grade = grade_patch(sandbox, with_tests(row, "false"), patch_of(greet), timeout_s=60)
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.n_statuses == 0


def test_the_statuses_of_a_log_are_counted(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    grade = grade_patch(sandbox, row, patch_of(greet), timeout_s=60)
    assert (grade.n_statuses, grade.test_exit_code) == (3, 0)


def test_the_command_that_applied_the_patch_is_recorded(
    sandbox: FolderSandbox, row: dict[str, Any], patch_of: PatchOf
) -> None:
    plain = patch_of(greet)
    shifted = plain.replace("@@ -1 +1 @@", "@@ -1,1 +1,1 @@").replace("-good bye", "-good  bye")
    assert grade_patch(sandbox, row, plain, timeout_s=60).apply_command == "git apply --verbose"
    # The very same patch once more: it is there already.
    again = grade_patch(sandbox, row, plain, timeout_s=60).apply_command
    assert again == "git apply --verbose --3way"
    already = grade_patch(sandbox, row, shifted, timeout_s=60).apply_command
    assert already == "git apply --check --reverse"
