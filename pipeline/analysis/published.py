"""What differs from the published study that a sweep repeats, as a note of the report."""

from collections.abc import Iterator

from pipeline.analysis.problem import Problem
from pipeline.records.lock import Lock
from pipeline.spec.parse import plain
from pipeline.spec.published import differences


def not_as_published(lock: Lock | None) -> Iterator[Problem]:
    """Yield the note, where the sweep repeats a study with other settings."""
    study = None if lock is None else lock.spec.study
    found = differences(study, plain(lock.spec)) if lock and study else []
    if study and found:
        yield Problem(
            code="not_as_published",
            sentence=f"not as in {study.source}: {'; '.join(found)}",
            remedy="compare arms within this sweep; beside the study's numbers, name what differs",
            blocks=False,
        )
