"""Rows of Lite's and of Multilingual's shape: graded by the parser that they name."""

import json

import pytest

from pipeline.benchmarks.swe_bench.columns import check_rows
from pipeline.records.failure import GradeClass
from tests.grading.test_harness import PatchOf, graded, greet

LISTS = {"version": None, "FAIL_TO_PASS": ["hello"], "PASS_TO_PASS": ["count", "mode"]}
TEXTS = {"version": "1.0", **{c: json.dumps(LISTS[c]) for c in ("FAIL_TO_PASS", "PASS_TO_PASS")}}
SHAPES = {
    "lite": (TEXTS, "parse_log_pytest", "PASSED %s", "FAILED %s"),
    "multilingual-go": (LISTS, "parse_log_gotest", "--- PASS: %s (0.00s)", "--- FAIL: %s (0.00s)"),
    "multilingual-rust": (LISTS, "parse_log_cargo", "test %s ... ok", "test %s ... FAILED"),
}
REST = dict.fromkeys(("base_commit", "patch", "test_patch", "problem_statement"), "x")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_of_each_shape_passes_with_its_fix_and_fails_with_another(
    shape: str, sandbox, row, patch_of: PatchOf
) -> None:
    columns, parser, passed, failed = SHAPES[shape]
    script = row["eval_script"]
    for name in ("hello", "count", "mode"):
        said = (
            f"if bash check_{name}.sh; then echo '{passed % name}'; else echo '{failed % name}'; fi"
        )
        script = script.replace("bash tests.sh", f"{said}\nbash tests.sh")
    row |= {**columns, "log_parser": parser, "eval_script": script.replace("bash tests.sh\n", "")}
    check_rows([{**REST, **row}], source=shape)
    other = graded(sandbox, row, patch_of(lambda folder: (folder / "new.txt").write_text("x")))
    assert (other.grade_class, other.f2p_passed, other.p2p_passed) == (GradeClass.UNRESOLVED, 0, 2)
    assert graded(sandbox, row, patch_of(greet)).grade_class is GradeClass.RESOLVED
