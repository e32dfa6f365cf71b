"""The grades that were journaled so far, for patches that come again.

Arms often end in the very same patch. Only grading workers' journals are read, so that a long
sweep's rollouts need not be unpacked for it; what may be reused is `pipeline.grading.cache`'s rule.
"""

import json

from pipeline.grading.cache import GradeCache, GradeKey
from pipeline.grading.verdict import Grade
from pipeline.records.frames import FrameKind
from pipeline.records.grade_record import GradeRecord
from pipeline.records.journal import grade_of, scan
from pipeline.records.layout import Layout

PREFIX = "grade-"
"""Of grading workers' names, and so of their journals, and of their claims."""


def cached_grades(layout: Layout) -> GradeCache:
    """Return what grading workers have journaled so far."""
    cache = GradeCache()
    for path in layout.journal_paths():
        if not path.stem.startswith(PREFIX):
            continue
        for frame in scan(path).frames:
            if frame.kind == FrameKind.GRADE and frame.head["patch_sha256"] is not None:
                record = grade_of(frame)
                cache.add(_key_of(record), _grade_in(record))
    return cache


def _key_of(record: GradeRecord) -> GradeKey:
    assert record.patch_sha256 is not None
    return GradeKey(
        record.instance_id, record.patch_sha256, record.image_digest, record.harness_version
    )


def _grade_in(record: GradeRecord) -> Grade:
    return Grade(
        grade_class=record.grade_class,
        reason=record.failure or "",
        score=record.score,
        score_parts=json.loads(record.score_parts or "{}"),
        patch_exists=record.patch_exists,
        patch_applied=record.patch_applied,
        f2p_passed=record.f2p_passed,
        f2p_total=record.f2p_total,
        p2p_passed=record.p2p_passed,
        p2p_total=record.p2p_total,
        report=json.loads(record.report or "{}"),
        environment=record.eval_environment,
        apply_command=record.apply_command,
        test_exit_code=record.test_exit_code,
        n_statuses=record.n_statuses,
        test_settings=record.test_settings,
    )
