"""One recorded run to learn from, wherever it was read."""

from dataclasses import dataclass

from pipeline.views.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """One run to learn from."""

    run_id: str
    instance_id: str
    model: str
    trajectory: Trajectory
    """Its messages as they were first shown."""
    patch: str
    tools: str | None
    """JSON of the tool list that was sent, if it was recorded."""
    source: str
    """The file or folder it was read from, by name."""
    source_sha256: str
    """Of the file; of the table file `runs` for a results folder."""
