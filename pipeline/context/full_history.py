"""The baseline: everything stays as it is."""

from collections.abc import Sequence

from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Trajectory


class FullHistoryPolicy:
    """Edits nothing; the elision that all arms share is not an arm's decision."""

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return no edits."""
        return ()
