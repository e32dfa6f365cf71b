"""Grades that need no second sandbox: same instance, patch, image and harness.

Arms often end in the very same patch, and a relaunch meets patches it has graded before. The
cache is a dictionary filled from the grades already journaled, so it costs no file of its own and
cannot disagree with the record. Infrastructure failures and timeouts are never reused.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.grading.verdict import UNDECIDED, Grade


class GradeKey(NamedTuple):
    """All that a grade depends on."""

    instance_id: str
    patch_sha256: str
    image_digest: str | None
    harness_version: str


@dataclass(slots=True)
class GradeCache:
    """Finished grades by what they depend on."""

    grades: dict[GradeKey, Grade] = field(default_factory=dict)

    def add(self, key: GradeKey, grade: Grade) -> None:
        """Remember a grade, if the patch alone decided it."""
        if grade.grade_class not in UNDECIDED:
            # The log stays with the grading that made it.
            self.grades[key] = replace(grade, test_output="")

    def get(self, key: GradeKey) -> Grade | None:
        """Return the earlier grade of the same patch, None where it was never graded."""
        return self.grades.get(key)
