"""Which grade an official report stands for."""

from pipeline.grading.cache import GradeCache, GradeKey
from pipeline.grading.verdict import (
    Grade,
    from_report,
    infra_failed,
    last_line,
    out_of_time,
    without_patch,
)
from pipeline.records.failure import GradeClass


def report(**changes) -> dict:
    plain = {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": True,
        "resolved": False,
        "infra_failure": False,
        "tests_status": {
            "FAIL_TO_PASS": {"success": ["a"], "failure": ["b"]},
            "PASS_TO_PASS": {"success": ["c", "d"], "failure": []},
        },
    }
    return {**plain, **changes}


def test_the_counts_are_those_of_the_report() -> None:
    grade = from_report(report())
    assert (grade.f2p_passed, grade.f2p_total, grade.p2p_passed, grade.p2p_total) == (1, 2, 2, 2)
    assert grade.grade_class is GradeClass.UNRESOLVED


def test_without_test_results_the_counts_are_unknown_and_not_zero() -> None:
    grade = from_report(report(tests_status=None, patch_successfully_applied=False))
    assert grade.f2p_passed is None
    assert grade.reason == "no gradable test output"


def test_only_a_certain_environment_fault_is_an_infrastructure_failure() -> None:
    certain = from_report(report(infra_failure=True, infra_failure_reason="out_of_memory"))
    ambiguous = from_report(report(infra_failure_reason="missing_module"))
    assert certain.grade_class is GradeClass.GRADE_INFRA
    assert certain.resolved is None
    assert ambiguous.grade_class is GradeClass.UNRESOLVED
    assert ambiguous.reason == "missing_module"


def test_a_timeout_counts_as_unresolved_under_its_own_class() -> None:
    grade = out_of_time("p", limit_s=5, output="", seconds=5.0)
    assert grade.grade_class is GradeClass.GRADE_TIMEOUT
    assert grade.resolved is False


def test_every_grade_carries_the_official_keys() -> None:
    official_keys = set(report()) - {"tests_status"}
    made = [without_patch(None), infra_failed("p", reason="r"), from_report(report())]
    assert all(official_keys <= set(grade.report) for grade in made)


def test_the_last_line_is_the_last_that_says_something() -> None:
    assert last_line("one\ntwo\n\n  \n") == "two"
    assert last_line("") == ""


def key() -> GradeKey:
    return GradeKey("i", "p", "sha256:1", "5.0.2")


def test_the_cache_returns_a_grade_only_for_the_same_patch_instance_image_and_harness() -> None:
    cache = GradeCache()
    grade: Grade = from_report(report())
    cache.add(key(), grade)
    assert cache.get(key()) == grade
    for field in GradeKey._fields:
        assert cache.get(key()._replace(**{field: "another"})) is None


def test_failures_of_ours_and_timeouts_are_never_reused() -> None:
    cache = GradeCache()
    cache.add(key(), infra_failed("p", reason="r"))
    cache.add(key(), out_of_time("p", limit_s=5, output="", seconds=5.0))
    assert cache.get(key()) is None
