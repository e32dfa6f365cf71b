"""One run that somebody else recorded, whatever the file's format.

Readers make it, `ingested` turns it into a record of a results folder, `replay` and `linehead` take
its trajectory. What a file does not say is None.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.records.failure import FailureClass
from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Trajectory

Count = Callable[[str], int]
"""Tokens of a text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignRun:
    """One recorded run. `calls` hold the server's usage."""

    instance_id: str | None
    """As the file gives it; `instances.instance_of` names a run whose file does not."""
    agent: str
    """The scaffold that recorded it."""
    agent_version: str
    model: str
    trajectory: Trajectory
    calls: tuple[CallRecord, ...]
    """Billed in this conversation."""
    repeated: tuple[CallRecord, ...] = ()
    """Calls before these that another file bills: a fork or a sub-agent repeats its parent's."""
    aside: tuple[CallRecord, ...] = ()
    """Billed, in the same file, and no part of the conversation: other branches, side questions."""
    exit_status: str
    failure_class: FailureClass
    failure: str | None
    submission: str
    started_at: float | None
    finished_at: float | None
    wall_s: float | None
    """None where the file has no times, or impossible ones; `notes` says which."""
    reported_calls: int | None = None
    """How many calls the file says were made; more than `calls` where replies were not kept."""
    digest: str | None = None
    """Of the run's own content, where its file holds several; else the file's counts."""
    notes: tuple[str, ...] = ()
    """What was left out or not believed, for people."""

    @property
    def task(self) -> str:
        """What the agent was asked: the first user message."""
        asked = (m.content for m in self.trajectory.messages if m.role == "user")
        return next(asked, "")
