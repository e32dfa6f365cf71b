"""What is open: the journals' answer, as rollout and as grading workers ask for it.

A block queue wants to know of a run only whether it is open, closed or not there yet, and how often
it has failed. Both ledgers answer from `records.states`, the one place that reads journals.
"""

from enum import StrEnum
from typing import Protocol

from pipeline.records.failure import GradeClass
from pipeline.records.states import RunState, States


class Work(StrEnum):
    """What is to be done about a run."""

    OPEN = "open"
    CLOSED = "closed"
    NOT_YET = "not_yet"
    """Something else has to happen first."""


class Ledger(Protocol):
    """The state of all runs, as one kind of worker sees it."""

    def refresh(self) -> None:
        """Read what is new in the journals."""
        ...

    def work_on(self, run_id: str) -> Work:
        """Return what is to be done about a run, as of the last `refresh`."""
        ...

    def failures(self, run_id: str) -> int:
        """Return how often our side has failed at it."""
        ...


class RolloutLedger:
    """A run is open until it has a valid record, or its arm was ended."""

    def __init__(self, states: States) -> None:
        self._states = states

    def refresh(self) -> None:
        """Read what is new in the journals."""
        self._states.refresh()

    def work_on(self, run_id: str) -> Work:
        """Return OPEN until a valid record is there."""
        return Work.OPEN if self._states.state_of(run_id).to_run else Work.CLOSED

    def failures(self, run_id: str) -> int:
        """Return the infrastructure failures recorded, by whichever worker."""
        return self._states.state_of(run_id).infra_attempts


class GradeLedger:
    """A finished run is open until its patch, and a patch left at a limit, have valid grades."""

    def __init__(self, states: States) -> None:
        self.states = states
        self._failures: dict[str, int] = {}

    def refresh(self) -> None:
        """Read what is new in the journals."""
        self.states.refresh()

    def work_on(self, run_id: str) -> Work:
        """Return NOT_YET for a run without a valid record: it gets no grade."""
        state = self.states.state_of(run_id)
        if state.to_run:
            return Work.NOT_YET
        return Work.OPEN if state.to_grade or limit_to_grade(state) else Work.CLOSED

    def failures(self, run_id: str) -> int:
        """Return the failures of this worker: a grade's are told apart by no count on disk."""
        return self._failures.get(run_id, 0)

    def note_failure(self, run_id: str) -> None:
        """Count a failed grading. Any thread: each run is in one thread at a time."""
        self._failures[run_id] = self.failures(run_id) + 1


def limit_to_grade(state: RunState) -> bool:
    """Return whether the patch left at a limit, the secondary outcome, still has no valid grade."""
    return state.limit_patch_sha256 is not None and state.limit_grade_class in (
        None,
        GradeClass.GRADE_INFRA,
    )
