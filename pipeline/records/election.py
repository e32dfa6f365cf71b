"""Which of several records counts: one rule for the states and for the tables.

A record is known here by its head and its place; nothing is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.rows import Row

Place = tuple[str, int]
"""Where a record lies: journal and offset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One record of a run or of a grade, by its head: enough to decide which one counts."""

    head: Mapping[str, Any]
    journal: str
    offset: int
    in_tables: bool = False

    @property
    def place(self) -> Place:
        """Where the record lies."""
        return (self.journal, self.offset)

    @property
    def order(self) -> tuple[float, str, int]:
        """The earlier record wins; the journal's name breaks ties on every machine alike."""
        return (float(self.head["finished_at"]), self.journal, self.offset)

    @property
    def is_valid_run(self) -> bool:
        """True unless our side failed."""
        return not FailureClass(self.head["failure_class"]).is_infra

    @property
    def is_valid_grade(self) -> bool:
        """True unless grading itself failed."""
        return GradeClass(self.head["grade_class"]) is not GradeClass.GRADE_INFRA


def winning_run(candidates: Iterable[Candidate]) -> Candidate:
    """Return the record that is the run's result (docs/methods.md, Which record counts).

    The valid one already in the tables, else the earliest valid one; where none is valid, the
    latest failure, which is what there is to say about the run.
    """
    known = list(candidates)
    valid = [c for c in known if c.is_valid_run]
    if not valid:
        return max(known, key=lambda c: c.order)
    return min(valid, key=lambda c: (not c.in_tables, c.order))


def winning_grade(candidates: Iterable[Candidate], patch_sha256: str | None) -> Candidate:
    """Return the grade that counts for a run whose result has the patch `patch_sha256`.

    Grades of this very patch come before stale ones, valid ones before failed ones; among equals
    the one in the tables, then the earliest; among failures the latest.
    """
    known = list(candidates)
    fresh = [c for c in known if c.head["patch_sha256"] == patch_sha256] or known
    valid = [c for c in fresh if c.is_valid_grade]
    if not valid:
        return max(fresh, key=lambda c: c.order)
    return min(valid, key=lambda c: (not c.in_tables, c.order))


@dataclass(slots=True)
class Elected:
    """The winner of every run or grade, and the records that lost."""

    winners: dict[str, Candidate] = field(default_factory=dict)
    lost: list[tuple[Candidate, str]] = field(default_factory=list)

    def is_winner(self, run_id: str, place: Place) -> bool:
        """Return whether the record at `place` is the run's winner."""
        winner = self.winners.get(run_id)
        return winner is not None and winner.place == place

    def rows(self, found: Mapping[Place, Row]) -> list[Row]:
        """Return the winners' rows: as found in a journal, else as the table has them."""
        return [found.get(c.place) or dict(c.head) for c in self.winners.values()]


def why_lost(grade: Candidate, patch_sha256: str | None) -> str:
    """Return why a grade of a run with that patch does not count (`superseded.reason`)."""
    if grade.head["patch_sha256"] != patch_sha256:
        return "stale_patch"
    return "duplicate" if grade.is_valid_grade else "infra_retried"


def lost_row(record: str, loser: Candidate, reason: str) -> Row:
    """Return the row of `superseded` of a record (`run`, `grade`, `limit_grade`)."""
    head = loser.head
    return {
        "record": record,
        "reason": reason,
        "failure_class": head["failure_class" if record == "run" else "grade_class"],
        "input_tokens": head.get("input_tokens"),
        "journal": loser.journal,
        "journal_offset": loser.offset,
        **{name: head[name] for name in ("run_id", "attempt", "patch_sha256", "finished_at")},
    }
