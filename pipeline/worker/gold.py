"""The gold patches graded on this site: does a patch that is known to be right come out right?

An instance whose gold patch is not resolved here cannot say anything about an arm here. It goes
into the quarantine list, with the reason. What was resolved once is not graded again.
"""

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.benchmarks.format import Grader
from pipeline.grading.evaluation import N_TRIES, EvalSite
from pipeline.grading.verdict import UNDECIDED, Grade, has_content, infra_failed, without_patch
from pipeline.host.files import read_json, replace_bytes
from pipeline.records.failure import GradeClass, InfraError
from pipeline.worker.sandboxes import OpenSandboxes


@dataclass(frozen=True, kw_only=True)
class GoldGrade:
    """How the gold patch of one instance fared here."""

    instance_id: str
    grade_class: GradeClass
    reason: str
    seconds: float
    harness_version: str
    image_digest: str | None
    eval_environment: str | None = None
    """What the evaluation ran with; see `pipeline.grading.environments`."""


def grade_gold(
    rows: Sequence[Mapping[str, Any]],
    sandboxes: OpenSandboxes,
    path: Path,
    *,
    concurrency: int,
    timeout_s: float,
    site: EvalSite,
    grader: Grader,
    say: Callable[[GoldGrade, int, int], None],
) -> list[GoldGrade]:
    """Grade the gold patches that `path` does not list as resolved; return all grades.

    Args:
        rows: benchmark rows, with their `patch`.
        sandboxes: where to grade.
        path: the list (JSON), replaced after every grade, so that nothing is lost on Ctrl-C.
        concurrency: gradings at once.
        timeout_s: limit of one evaluation script.
        site: what evaluations can fetch here.
        grader: the benchmark's.
        say: told every new grade, how many are done and how many there are.
    """
    grades = {grade.instance_id: grade for grade in read_gold(path)}
    todo = [
        row
        for row in rows
        if (known := grades.get(str(row["instance_id"]))) is None
        or known.grade_class is not GradeClass.RESOLVED
        or known.harness_version != grader.version(row)
        or known.image_digest != sandboxes.factory.digest(row)
    ]
    pool = ThreadPoolExecutor(max_workers=concurrency)
    try:
        futures = [pool.submit(_one, row, sandboxes, site, grader, timeout_s) for row in todo]
        for n_done, future in enumerate(as_completed(futures), start=1):
            grade = future.result()
            grades[grade.instance_id] = grade
            ordered = [asdict(grades[key]) for key in sorted(grades)]
            replace_bytes(path, json.dumps(ordered, indent=1).encode())
            say(grade, n_done, len(todo))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        sandboxes.stop_all()
    return [grades[str(row["instance_id"])] for row in rows]


def read_gold(path: Path) -> list[GoldGrade]:
    """Return the grades in a gold list; none where there is no list yet."""
    if not path.exists():
        return []
    return [
        GoldGrade(**{**entry, "grade_class": GradeClass(entry["grade_class"])})
        for entry in read_json(path)
    ]


def _one(
    row: Mapping[str, Any],
    sandboxes: OpenSandboxes,
    site: EvalSite,
    grader: Grader,
    timeout_s: float,
) -> GoldGrade:
    grade = _try(row, sandboxes, site, grader, timeout_s)
    for _ in range(1, N_TRIES):
        if grade.grade_class in UNDECIDED:
            grade = _try(row, sandboxes, site, grader, timeout_s)
    return GoldGrade(
        instance_id=str(row["instance_id"]),
        grade_class=grade.grade_class,
        reason=grade.reason,
        seconds=grade.seconds,
        harness_version=grader.version(row),
        image_digest=sandboxes.factory.digest(row),
        eval_environment=grade.environment,
    )


def _try(
    row: Mapping[str, Any],
    sandboxes: OpenSandboxes,
    site: EvalSite,
    grader: Grader,
    timeout_s: float,
) -> Grade:
    try:
        gold = grader.gold(row, partial(sandboxes.start, row, "rollout"))
        if not has_content(gold):
            return without_patch(gold, reason="no known solution")
        start = partial(sandboxes.start, row, "grade")
        return grader.grade(row, gold, start, site, timeout_s=timeout_s)
    except InfraError:
        return infra_failed(None, reason=traceback.format_exc(limit=1))
