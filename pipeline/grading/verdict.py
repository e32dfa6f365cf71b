"""What a grading came to: pure rules from the official report to a grade class.

Owns the line between "the patch is wrong" and "our side failed", because a failure of ours that
is written down as unresolved would count against an arm. Starts nothing, reads no file, and
changes nothing in the official report, which every grade carries along.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.records.failure import GradeClass

UNDECIDED = frozenset({GradeClass.GRADE_INFRA, GradeClass.GRADE_TIMEOUT})
"""What the patch alone does not decide: tried again, and never used for another run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """One grading of one patch. Counts are None where no test was seen to run."""

    grade_class: GradeClass
    reason: str = ""
    """One clause where the class alone does not say why."""
    score: float | None = None
    """How far the instance is solved, 0 to 1; None where it is solved or not, or nobody knows."""
    score_parts: Mapping[str, float] = field(default_factory=dict)
    """What the score is made of, by name, in the grader's own units."""
    patch_exists: bool
    patch_applied: bool | None
    """It applied and left a gradable log, as the official report means it; None: never tried."""
    f2p_passed: int | None = None
    f2p_total: int | None = None
    p2p_passed: int | None = None
    p2p_total: int | None = None
    seconds: float = 0.0
    """Wall time of applying the patch and running the tests, the sandbox's start aside."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """The official per-instance report."""
    test_output: str = ""
    """What the evaluation script printed; kept in the logs, never in a table."""
    environment: str | None = None
    """Which of `environments`' the evaluation ran with; None: no test was run."""
    apply_command: str | None = None
    """The official command that applied the patch; None: none did, or none was tried."""
    test_exit_code: int | None = None
    """Of the test command; None where the log does not get that far."""
    n_statuses: int | None = None
    """Tests whose status the log has; 0: it is complete and has none; None: it is not complete."""
    test_settings: tuple[str, ...] = ()
    """Files of the patch that change how tests are run."""

    def __post_init__(self) -> None:
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"a score of {self.score} is not between 0 and 1")

    @property
    def resolved(self) -> bool | None:
        """Whether the instance is resolved; None where our side failed and nobody knows."""
        if self.grade_class is GradeClass.GRADE_INFRA:
            return None
        return self.grade_class is GradeClass.RESOLVED


def has_content(patch: str | None) -> bool:
    """Return whether there is a patch to grade: white space is none."""
    return patch is not None and bool(patch.strip())


def ungraded_report(patch: str | None) -> dict[str, Any]:
    """Return a report with the official keys for a patch whose tests were never seen."""
    return {
        "patch_is_None": patch is None,
        "patch_exists": has_content(patch),
        "patch_successfully_applied": False,
        "resolved": False,
        "infra_failure": False,
    }


def without_patch(patch: str | None, *, reason: str = "no patch") -> Grade:
    """Return the grade of a run that submitted nothing: unresolved, and no sandbox was needed."""
    return Grade(
        grade_class=GradeClass.UNRESOLVED,
        reason=reason,
        patch_exists=False,
        patch_applied=None,
        report=ungraded_report(patch),
    )


def not_applied(patch: str, *, output: str, seconds: float) -> Grade:
    """Return the grade of a patch that no official command could apply."""
    reason = last_line(output) or "no command could apply the patch"
    return _unseen(patch, GradeClass.PATCH_FAILED, reason, output, seconds)


def out_of_time(patch: str, *, limit_s: float, output: str, seconds: float) -> Grade:
    """Return the grade of a patch whose tests did not end in time."""
    reason = f"tests still ran after {limit_s:g} s"
    return _unseen(patch, GradeClass.GRADE_TIMEOUT, reason, output, seconds)


def out_of_bounds(patch: str, *, limit_bytes: int, output: str, seconds: float) -> Grade:
    """Return the grade of a patch whose tests printed more than any tests have reason to."""
    reason = f"tests printed more than {limit_bytes >> 20} MiB"
    return _unseen(patch, GradeClass.UNRESOLVED, reason, output, seconds)


def of_answer(
    score: float, *, parts: Mapping[str, float] | None = None, seconds: float = 0.0, said: str = ""
) -> Grade:
    """Return the grade of a text with a score from 0 to 1; it is solved at 1.

    Args:
        score: of the text.
        parts: what the score is made of.
        seconds: that scoring took.
        said: what a judge wrote; kept in the logs.
    """
    return Grade(
        grade_class=GradeClass.RESOLVED if score >= 1 else GradeClass.UNRESOLVED,
        score=score,
        score_parts=parts or {},
        patch_exists=True,
        patch_applied=None,
        seconds=seconds,
        test_output=said,
    )


def infra_failed(
    patch: str | None, *, reason: str, seconds: float = 0.0, output: str = ""
) -> Grade:
    """Return the grade of a patch that our side could not grade, for a reason."""
    report = {**ungraded_report(patch), "infra_failure": True, "infra_failure_reason": reason}
    return Grade(
        grade_class=GradeClass.GRADE_INFRA,
        reason=reason,
        patch_exists=has_content(patch),
        patch_applied=None,
        seconds=seconds,
        report=report,
        test_output=output,
    )


def from_report(report: Mapping[str, Any], *, output: str = "", seconds: float = 0.0) -> Grade:
    """Return the grade that an official per-instance report stands for.

    The official classifier is advisory and leaves a broken environment unresolved. Here its
    `environment` tier is an infrastructure failure, so that it is graded again; what a bad patch
    can cause as well stays unresolved, with the reason kept.
    """
    status = report.get("tests_status")
    grade = Grade(
        grade_class=_class_of(report),
        reason=str(report.get("infra_failure_reason") or _missing_reason(report)),
        patch_exists=bool(report.get("patch_exists")),
        patch_applied=bool(report.get("patch_successfully_applied")),
        seconds=seconds,
        report=dict(report),
        test_output=output,
    )
    if not status:
        return grade
    f2p, p2p = status["FAIL_TO_PASS"], status["PASS_TO_PASS"]
    return replace(
        grade,
        f2p_passed=len(f2p["success"]),
        f2p_total=len(f2p["success"]) + len(f2p["failure"]),
        p2p_passed=len(p2p["success"]),
        p2p_total=len(p2p["success"]) + len(p2p["failure"]),
    )


def _unseen(patch: str, grade_class: GradeClass, reason: str, output: str, seconds: float) -> Grade:
    """Return the grade of a patch that is at fault and left no log to read results from."""
    return Grade(
        grade_class=grade_class,
        reason=reason,
        patch_exists=True,
        patch_applied=False,
        seconds=seconds,
        report=ungraded_report(patch),
        test_output=output,
    )


def last_line(text: str) -> str:
    """Return the last line of `text` that says something, at most 200 characters of it."""
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def _class_of(report: Mapping[str, Any]) -> GradeClass:
    if report.get("resolved"):
        return GradeClass.RESOLVED
    if report.get("infra_failure"):
        return GradeClass.GRADE_INFRA
    return GradeClass.UNRESOLVED


def _missing_reason(report: Mapping[str, Any]) -> str:
    return "" if report.get("patch_successfully_applied") else "no gradable test output"
