"""docs/adding-a-benchmark.md, followed: its format reads, checks out and grades."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.benchmarks.rows import DatasetError
from pipeline.grading.evaluation import EvalSite
from pipeline.records.failure import GradeClass
from pipeline.sandbox.local import LocalSandboxes
from pipeline.worker.sandboxes import OpenSandboxes
from tests.pages import names_in

PATCH = """diff --git a/add.py b/add.py
--- a/add.py
+++ b/add.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
ROW: dict[str, Any] = {
    "instance_id": "own__add-1",
    "repo": "own/add",
    "problem_statement": "add subtracts",
    "files": {"add.py": "def add(a, b):\n    return a - b\n"},
    "check": "python3 -c 'import add; assert add.add(1, 2) == 3'",
    "patch": PATCH,
}


@pytest.fixture(scope="module")
def page() -> Any:
    return names_in("adding-a-benchmark.md")["FORMAT"]


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_pages_format_grades_a_right_and_a_wrong_and_a_broken_patch(page, tmp_path):
    (row,) = page.rows(written(tmp_path, ROW))
    sandboxes = OpenSandboxes(LocalSandboxes(tmp_path / "root", page.checkout))

    def graded(patch: str) -> GradeClass:
        start = partial(sandboxes.start, row, "grade")
        return page.grader.grade(row, patch, start, EvalSite(), timeout_s=20).grade_class

    assert (
        graded(page.grader.gold(row, partial(sandboxes.start, row, "rollout")))
        is GradeClass.RESOLVED
    )
    assert graded(PATCH.replace("a + b", "b")) is GradeClass.UNRESOLVED
    assert graded(PATCH.replace("a - b", "no such line")) is GradeClass.PATCH_FAILED


def test_the_pages_format_refuses_a_row_that_it_could_not_grade(page, tmp_path):
    with pytest.raises(DatasetError, match=r"row 1 \(own__add-1\): missing check"):
        page.rows(written(tmp_path, {**ROW, "check": ""}))
