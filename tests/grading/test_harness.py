"""Grading a patch: the official harness's rules, in a sandbox of ours."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.grading.harness import eval_script, grade_log, grade_patch, official
from pipeline.records.failure import GradeClass, SandboxError
from pipeline.records.patch import patch_text
from tests.grading.conftest import DATA, FolderSandbox

PatchOf = Callable[[Callable[[Path], None]], str]


def greet(folder: Path) -> None:
    (folder / "greeting.txt").write_text("hello\n")


def graded(sandbox: FolderSandbox, row: dict[str, Any], patch: str | None, timeout_s: float = 60):
    return grade_patch(sandbox, row, patch, timeout_s=timeout_s)


def test_a_patch_that_fixes_the_test_is_resolved(sandbox, row, patch_of: PatchOf) -> None:
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.RESOLVED
    assert grade.resolved is True
    assert (grade.f2p_passed, grade.f2p_total) == (1, 1)
    assert (grade.p2p_passed, grade.p2p_total) == (2, 2)
    assert grade.report["patch_successfully_applied"] is True
    assert ">>>>> Test Exit Code: 0" in grade.test_output


def test_a_patch_that_breaks_a_test_is_unresolved(sandbox, row, patch_of: PatchOf) -> None:
    def break_it(folder: Path) -> None:
        greet(folder)
        (folder / "numbers.txt").write_text("1\n")

    grade = graded(sandbox, row, patch_of(break_it))
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert (grade.f2p_passed, grade.p2p_passed, grade.p2p_total) == (1, 1, 2)


@pytest.mark.parametrize("patch", [None, "", " \n\n"])
def test_no_patch_is_unresolved_without_touching_the_sandbox(row, patch: str | None) -> None:
    class Untouchable:
        workdir = "/nowhere"

    grade = grade_patch(Untouchable(), row, patch, timeout_s=1)  # type: ignore[arg-type]
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.patch_exists is False
    assert grade.f2p_total is None


@pytest.mark.parametrize(
    "patch", ["I have fixed the bug.\n", "diff --git a/x b/x\n@@ nonsense\n", "\x00\x01\x02"]
)
def test_text_that_is_no_patch_fails_to_apply(sandbox, row, patch: str) -> None:
    grade = graded(sandbox, row, patch)
    assert grade.grade_class is GradeClass.PATCH_FAILED
    assert grade.resolved is False
    assert grade.patch_exists is True
    assert grade.reason


def change_binary(folder: Path) -> None:
    greet(folder)
    (folder / "logo.png").write_bytes(bytes(range(256)) * 20)
    (folder / "check_mode.sh").write_text("[ $(wc -c < logo.png) = 5120 ]")


def change_crlf(folder: Path) -> None:
    greet(folder)
    (folder / "crlf.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (folder / "check_mode.sh").write_text("[ $(tr -cd '\\r' < crlf.txt | wc -c) = 3 ]")


def add_files(folder: Path) -> None:
    greet(folder)
    (folder / "new folder").mkdir()
    (folder / "new folder" / "ünï.txt").write_text("new\n")
    (folder / "check_mode.sh").write_text("[ -f 'new folder/ünï.txt' ]")


def rename(folder: Path) -> None:
    greet(folder)
    (folder / "numbers.txt").rename(folder / "figures.txt")
    (folder / "check_count.sh").write_text("[ ! -e numbers.txt ] && [ -s figures.txt ]")


def change_mode(folder: Path) -> None:
    greet(folder)
    (folder / "greeting.txt").chmod(0o755)
    (folder / "check_mode.sh").write_text("[ -x greeting.txt ]")


def change_non_utf8(folder: Path) -> None:
    greet(folder)
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "check_mode.sh").write_text("[ $(wc -c < latin.txt) = 5 ]")


def change_hugely(folder: Path) -> None:
    greet(folder)
    (folder / "huge.txt").write_text("a line of some length that repeats\n" * 400_000)
    (folder / "check_mode.sh").write_text("[ $(wc -l < huge.txt) = 400000 ]")


@pytest.mark.parametrize(
    "change",
    [change_binary, change_crlf, add_files, rename, change_mode, change_non_utf8, change_hugely],
)
def test_every_kind_of_patch_applies(sandbox, row, patch_of: PatchOf, change) -> None:
    grade = graded(sandbox, row, patch_of(change))
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output[-2000:]


def test_a_patch_that_only_fuzz_can_place_applies(sandbox, row, patch_of: PatchOf) -> None:
    def insert(folder: Path) -> None:
        greet(folder)
        numbers = (folder / "numbers.txt").read_text().replace("20\n", "20\ntwenty\n")
        (folder / "numbers.txt").write_text(numbers)

    patch = patch_of(insert).replace("\n 18\n", "\n eighteen\n")
    assert "eighteen" in patch
    assert graded(sandbox, row, patch).grade_class is GradeClass.RESOLVED


def test_a_patch_that_is_applied_already_counts_as_applied(sandbox, row, patch_of: PatchOf) -> None:
    patch = patch_of(greet)
    sandbox.upload(b"hello\n", "greeting.txt")
    # The tree is cleaned between tries, so the change must be committed to be there at the end.
    sandbox.execute("git -c user.name=t -c user.email=t@localhost commit -qam x", timeout_s=9)
    assert graded(sandbox, row, patch).grade_class is GradeClass.RESOLVED


def test_a_failed_try_leaves_nothing_for_the_next(sandbox, row, patch_of: PatchOf) -> None:
    def two(folder: Path) -> None:
        greet(folder)
        numbers = (folder / "numbers.txt").read_text().replace("20\n", "twenty\n")
        (folder / "numbers.txt").write_text(numbers)

    # One hunk can be placed, the other deletes a line that is nowhere.
    patch = patch_of(two).replace("\n-20\n", "\n-a line that is nowhere\n")
    grade = graded(sandbox, row, patch)
    assert grade.grade_class is GradeClass.PATCH_FAILED
    assert grade.patch_applied is False


def test_tests_that_run_too_long_are_a_timeout_with_the_log_so_far(
    sandbox, row, patch_of: PatchOf
) -> None:
    row["eval_script"] = row["eval_script"].replace("bash tests.sh", "echo begun; sleep 60")
    grade = graded(sandbox, row, patch_of(greet), timeout_s=1)
    assert grade.grade_class is GradeClass.GRADE_TIMEOUT
    assert grade.resolved is False
    assert "begun" in grade.test_output
    assert grade.test_output.endswith("Timeout error: 1 seconds exceeded.")


def test_a_process_that_the_tests_leave_behind_is_not_waited_for(
    sandbox, row, patch_of: PatchOf
) -> None:
    row["eval_script"] = row["eval_script"].replace("bash tests.sh", "sleep 50 & bash tests.sh")
    assert graded(sandbox, row, patch_of(greet), timeout_s=20).grade_class is GradeClass.RESOLVED


def test_tests_that_clear_the_temporary_folder_are_graded_all_the_same(
    sandbox, row, patch_of: PatchOf
) -> None:
    row["eval_script"] = row["eval_script"].replace(
        "bash tests.sh", 'bash tests.sh; rm -rf "${0%/*}"'
    )
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.RESOLVED, grade.test_output
    row["eval_script"] = row["eval_script"].replace('/*}"', '/*}"; sleep 60')
    assert graded(sandbox, row, patch_of(greet), 1).grade_class is GradeClass.GRADE_TIMEOUT


def test_tests_that_print_without_end_are_the_patchs_fault_and_fill_no_disk(
    sandbox, row, patch_of: PatchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("harness", "logged_run"):
        monkeypatch.setattr(f"pipeline.grading.{module}.LOG_LIMIT_BYTES", 1 << 20)
    row["eval_script"] = row["eval_script"].replace("bash tests.sh", "yes; bash tests.sh")
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.reason == "tests printed more than 1 MiB"
    assert len(grade.test_output) == 1 << 20
    sizes = [path.stat().st_size for path in Path(sandbox.env["TMPDIR"]).rglob("test_output.txt")]
    assert 0 < max(sizes) < 1 << 21


def test_a_log_longer_than_a_commands_output_is_read_whole(sandbox, row, patch_of: PatchOf) -> None:
    noise = "for n in $(seq 20000); do echo line $n; done; bash tests.sh"
    row["eval_script"] = row["eval_script"].replace("bash tests.sh", noise)
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.RESOLVED
    assert "line 10000\n" in grade.test_output


def test_output_that_is_no_utf8_is_no_obstacle(sandbox, row, patch_of: PatchOf) -> None:
    row["eval_script"] = row["eval_script"].replace(
        "bash tests.sh", "printf '\\xff\\xfe\\n'; bash tests.sh"
    )
    assert graded(sandbox, row, patch_of(greet)).grade_class is GradeClass.RESOLVED


def test_a_broken_environment_is_our_failure_and_not_the_patchs(
    sandbox, row, patch_of: PatchOf
) -> None:
    row["eval_script"] = row["eval_script"].replace(
        "bash tests.sh", "echo 'curl: (6) Could not resolve host: pypi'; false"
    )
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.GRADE_INFRA
    assert grade.reason == "network_unreachable"
    assert grade.resolved is None


def test_tests_that_never_ran_for_a_reason_a_patch_can_cause_are_unresolved(
    sandbox, row, patch_of: PatchOf
) -> None:
    row["eval_script"] = row["eval_script"].replace(
        "bash tests.sh", "echo \"ModuleNotFoundError: No module named 'x'\"; false"
    )
    grade = graded(sandbox, row, patch_of(greet))
    assert grade.grade_class is GradeClass.UNRESOLVED
    assert grade.reason == "missing_module"


def test_a_missing_repository_is_a_broken_sandbox(tmp_path: Path, row, patch_of: PatchOf) -> None:
    patch = patch_of(greet)
    empty = FolderSandbox(workdir=str(tmp_path), env={"PATH": "/usr/bin:/bin"})
    empty.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path.parent)
    with pytest.raises(SandboxError, match="cannot apply patches"):
        graded(empty, row, patch)


def test_a_row_in_the_classic_format_names_the_missing_column(row, tmp_path: Path) -> None:
    del row["eval_script"]
    log = tmp_path / "log"
    log.write_text("")
    with pytest.raises(KeyError, match="eval_script"):
        grade_log(log, row, "x")


def test_importing_the_harness_reads_no_dotenv_file() -> None:
    # The checkout's own .env, if any, would be found by walking up from site-packages.
    import dotenv

    before = dict(os.environ)
    official()
    assert dict(os.environ) == before
    assert dotenv.load_dotenv.__module__ == "dotenv.main"


@pytest.fixture(scope="module")
def verified() -> dict[str, dict[str, Any]]:
    path = DATA / "swebench_verified_v5.parquet"
    if not path.exists():
        pytest.skip(f"the real rows are not at {path}")
    import pyarrow.parquet as pq

    return {row["instance_id"]: row for row in pq.read_table(path).to_pylist()}


def test_twenty_stored_real_logs_give_the_stored_verdict(verified) -> None:
    folders = sorted((DATA / "eval_logs").iterdir())
    assert len(folders) == 20
    verdicts, stored = {}, {}
    for folder in folders:
        patch = (folder / "patch.diff").read_text()
        report = grade_log(folder / "test_output.txt", verified[folder.name], patch)
        verdicts[folder.name] = report["resolved"]
        official_report = json.loads((folder / "report.json").read_text())
        stored[folder.name] = official_report[folder.name]["resolved"]
    assert verdicts == stored
    assert len(set(stored.values())) == 2


def test_a_script_is_made_for_every_one_of_the_500_real_rows(verified) -> None:
    scripts = [eval_script(row) for row in verified.values()]
    assert len(scripts) == 500
    assert all(s.startswith("#!/bin/bash\nset -uxo pipefail\n") for s in scripts)
    assert all("SWEBENCH_TEST_EXIT_CODE=$?" in s for s in scripts)


def test_a_patch_in_another_encoding_is_applied_byte_for_byte(sandbox, row) -> None:
    patch = (
        b"diff --git a/greeting.txt b/greeting.txt\n--- a/greeting.txt\n+++ b/greeting.txt\n"
        b"@@ -1 +1,2 @@\n-good bye\n+hello\n+caf\xe9\n"
    )
    grade = graded(sandbox, row, patch_text(patch))
    assert grade.grade_class is GradeClass.RESOLVED
    assert (Path(sandbox.workdir) / "greeting.txt").read_bytes() == b"hello\ncaf\xe9\n"
