"""What has become of every run: the single answer, read from tables and journals.

Launch, workers, grading and status all ask here. The answer is read incrementally: every journal
from where the last look ended, heads only. What the tables hold counts even where a journal has
been lost since. Which of several records is the result is `election`'s rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.records.election import Candidate, winning_grade, winning_run
from pipeline.records.ended_arms import ended_runs
from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.frames import Damage, Frame, FrameKind
from pipeline.records.journal import GRADE_HEAD, RUN_HEAD, scan
from pipeline.records.layout import Layout
from pipeline.records.lock import REBUILD, damaged_files_named
from pipeline.records.schema import check_version


class Progress(StrEnum):
    """How far a run has come."""

    MISSING = "missing"
    INFRA_FAILED = "infra_failed"
    """Only infrastructure failures so far: to be run again."""
    ENDED = "ended"
    """No valid record, and none is wanted any more: its arm was ended."""
    DONE = "done"
    """A valid record, no valid grade of its patch yet."""
    GRADED = "graded"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """What has become of one run. Everything but `progress` is None until known."""

    run_id: str
    progress: Progress = Progress.MISSING
    infra_attempts: int = 0
    """Infrastructure failures recorded; the next attempt's number is one more."""
    failure_class: FailureClass | None = None
    patch_sha256: str | None = None
    """None also for a run that ended without a patch."""
    limit_patch_sha256: str | None = None
    finished_at: float | None = None
    journal: str | None = None
    """Where the result is: see `frame_at`."""
    offset: int | None = None
    n_steps: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    wall_s: float | None = None
    n_format_errors: int | None = None
    n_calls_as_text: int | None = None
    grade_class: GradeClass | None = None
    """Of the submitted patch; also set, with `progress` DONE, while grading only failed."""
    resolved: bool | None = None
    grade_attempts: int = 0
    limit_grade_class: GradeClass | None = None

    @property
    def to_run(self) -> bool:
        """True where a valid record is still missing."""
        return self.progress in (Progress.MISSING, Progress.INFRA_FAILED)

    @property
    def has_result(self) -> bool:
        """True where a valid record is there."""
        return self.progress in (Progress.DONE, Progress.GRADED)

    @property
    def to_grade(self) -> bool:
        """True where the submitted patch still has no valid grade."""
        return self.progress is Progress.DONE


class States:
    """The states of all runs of a results folder, kept current by `refresh`.

    Not for several threads at once.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._offsets: dict[str, int] = {}
        self._runs = committed(layout, "runs")
        self._grades = committed(layout, "grades")
        self._limit_grades = committed(layout, "limit_grades")
        self._committed = {
            c.place
            for groups in (self._runs, self._grades, self._limit_grades)
            for group in groups.values()
            for c in group
        }
        self._states: dict[str, RunState] = {}
        self._n_ended_arms = 0
        self._ended: frozenset[str] = frozenset()
        self._fresh = True
        self.damages: dict[str, list[Damage]] = {}
        """Corrupt stretches found, by journal."""

    def refresh(self) -> Mapping[str, RunState]:
        """Read what is new and return the state of every run that has a record."""
        touched = set(self._runs) if self._fresh else set()
        self._fresh = False
        touched |= self._newly_ended()
        for path in self._layout.journal_paths():
            name, start = path.stem, self._offsets.get(path.stem, 0)
            if _size_of(path) <= start:
                continue
            found = scan(path, start)
            self._offsets[name] = found.good_end
            if found.damages:
                self.damages.setdefault(name, []).extend(found.damages)
            for frame in found.frames:
                self._take(frame, name, touched)
        for run_id in touched:
            self._states[run_id] = self._state_of(run_id)
        return self._states

    def state_of(self, run_id: str) -> RunState:
        """Return the state of one run as of the last `refresh`."""
        return self._states.get(run_id) or RunState(run_id=run_id)

    def _newly_ended(self) -> frozenset[str]:
        """Return the runs whose arms were ended, or taken up again, since the last look."""
        n_arms = len(list(self._layout.ended_arms.glob("*.json")))
        if n_arms == self._n_ended_arms:
            return frozenset()
        before, self._ended = self._ended, ended_runs(self._layout)
        self._n_ended_arms = n_arms
        return before ^ self._ended

    def _take(self, frame: Frame, journal: str, touched: set[str]) -> None:
        if frame.kind == FrameKind.RUN:
            group = self._runs
        elif frame.kind == FrameKind.GRADE:
            submitted = frame.head["patch_kind"] == "submitted"
            group = self._grades if submitted else self._limit_grades
        else:
            return
        run_id = frame.head["run_id"]
        candidate = Candidate(head=frame.head, journal=journal, offset=frame.offset)
        if candidate.place in self._committed:
            return
        group.setdefault(run_id, []).append(candidate)
        touched.add(run_id)

    def _state_of(self, run_id: str) -> RunState:
        runs = self._runs.get(run_id)
        state = (
            state_from(
                run_id, runs, self._grades.get(run_id, []), self._limit_grades.get(run_id, [])
            )
            if runs
            else RunState(run_id=run_id)
        )
        if state.to_run and run_id in self._ended:
            return replace(state, progress=Progress.ENDED)
        return state


def state_from(
    run_id: str,
    runs: list[Candidate],
    grades: list[Candidate],
    limit_grades: list[Candidate],
) -> RunState:
    """Return the state that these records amount to; `runs` must not be empty."""
    winner = winning_run(runs)
    head = winner.head
    facts: dict[str, Any] = {name: head.get(name) for name in _FROM_HEAD}
    state = RunState(
        run_id=run_id,
        progress=Progress.DONE if winner.is_valid_run else Progress.INFRA_FAILED,
        infra_attempts=sum(not c.is_valid_run for c in runs),
        failure_class=FailureClass(head["failure_class"]),
        journal=winner.journal,
        offset=winner.offset,
        **facts,
    )
    if state.progress is not Progress.DONE:
        return state
    if limit_grades:
        limit = winning_grade(limit_grades, state.limit_patch_sha256)
        state = replace(state, limit_grade_class=GradeClass(limit.head["grade_class"]))
    if not grades:
        return state
    grade = winning_grade(grades, state.patch_sha256)
    fresh = grade.head["patch_sha256"] == state.patch_sha256
    return replace(
        state,
        progress=Progress.GRADED if fresh and grade.is_valid_grade else Progress.DONE,
        grade_class=GradeClass(grade.head["grade_class"]) if fresh else None,
        resolved=grade.head["resolved"] if fresh else None,
        grade_attempts=len(grades),
    )


_FROM_HEAD = (
    *("patch_sha256", "limit_patch_sha256", "finished_at", "n_steps", "input_tokens"),
    *("output_tokens", "wall_s", "n_format_errors", "n_calls_as_text"),
)


def committed(layout: Layout, table: str) -> dict[str, list[Candidate]]:
    """Return the records that `runs`, `grades` or `limit_grades` was made from, by run."""
    path = layout.table_file(table)
    if not path.exists():
        return {}
    heads = RUN_HEAD if table == "runs" else GRADE_HEAD
    columns = [*heads, "journal", "journal_offset"]
    with damaged_files_named(path, REBUILD):
        schema = pq.read_schema(path)
        check_version(schema, str(path))
        # Tables of an earlier version have no column that was added since.
        columns = [name for name in columns if name in schema.names]
        rows = pq.read_table(path, columns=columns).to_pylist()
    return {
        row["run_id"]: [
            Candidate(
                head=row, journal=row["journal"], offset=row["journal_offset"], in_tables=True
            )
        ]
        for row in rows
    }


def run_states(layout: Layout, run_ids: Iterable[str] = ()) -> dict[str, RunState]:
    """Return the state of every run that has a record, and of `run_ids`, known or missing."""
    states = States(layout)
    known = states.refresh()
    return {**{run_id: RunState(run_id=run_id) for run_id in run_ids}, **known}


def _size_of(path: Path) -> int:
    return path.stat().st_size
