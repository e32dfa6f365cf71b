"""Observation masking: only the newest turns' outputs stay (METHODS 2)."""

import re
from collections.abc import Sequence

from pipeline.context.shown import acted_turns, content_edit, is_removed, placeholder_text
from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Message, Trajectory

REASON = "mask"
WORDING = "Old environment output: ({lines} lines omitted)"


class ObservationMaskPolicy:
    """Masks the outputs of all but the newest turns, in batches where polling is on."""

    def __init__(
        self,
        *,
        keep_last_turns: int,
        polling: int,
        always_keep: Sequence[str] = (),
        placeholder: str | None = None,
    ) -> None:
        self._keep = keep_last_turns
        self._polling = polling
        self._always_keep = [re.compile(pattern) for pattern in always_keep]
        self._placeholder = WORDING if placeholder is None else placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits that mask what has left the window."""
        turns = acted_turns(trajectory)
        return [
            content_edit(message, placeholder_text(self._placeholder, message), REASON)
            for turn in turns[: masked_turns(len(turns), self._keep, self._polling)]
            for message in turn.observations
            if message.is_prunable
            and not is_removed(message, standing)
            and not self._is_kept(message)
        ]

    def _is_kept(self, message: Message) -> bool:
        return any(p.search(message.command or "") for p in self._always_keep)


def masked_turns(n_turns: int, keep: int, polling: int) -> int:
    """Return how many of the oldest turns are masked.

    The window grows from `keep` to `keep + polling` turns and then shrinks to `keep` at once, so
    that the prefix is cut once every `polling + 1` turns.
    """
    outside = max(0, n_turns - keep)
    return outside - outside % (polling + 1)
