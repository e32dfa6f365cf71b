"""A very long output moves to a file in the sandbox; the view keeps its head and tail.

The policy says what is shown and which files that takes (`KeepsFiles`); the agent writes them.
"""

from collections.abc import Mapping, Sequence

from pipeline.context.shown import content_edit, is_removed, newest_turn
from pipeline.protocols import Ask
from pipeline.records.trajectory import Edit, Edits, Message, Trajectory
from pipeline.spec.policy import Offload

REASON = "offload"
LINE_CHARS = 400
"""A line of the head or tail is shown up to this length."""


def offload_path(folder: str, message: Message) -> str:
    """Return where in the sandbox the output of `message` is stored."""
    return f"{folder.rstrip('/')}/output_{message.index}.txt"


class OffloadPolicy:
    """Offloads outputs as they arrive, before they are ever sent."""

    def __init__(self, spec: Offload) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for the newest turn's outputs that are long enough."""
        turn = newest_turn(trajectory)
        return [
            content_edit(message, self._shown(message), REASON)
            for message in (turn.observations if turn is not None else ())
            if message.is_prunable
            and message.n_tokens > self._spec.min_tokens
            and not is_removed(message, standing)
        ]

    def kept_files(self, trajectory: Trajectory, edits: Sequence[Edit]) -> Mapping[str, str]:
        """Return the outputs that `edits` shorten, whole, as they arrived."""
        messages = [trajectory.messages[edit.message_index] for edit in edits]
        return {offload_path(self._spec.folder, m): m.content for m in messages}

    def _shown(self, message: Message) -> str:
        text = message.content
        lines = text.splitlines()
        head, tail = self._spec.head_lines, self._spec.tail_lines
        middle = len(lines) - head - tail
        path = offload_path(self._spec.folder, message)
        where = f"[{message.n_tokens} tokens; the whole output is in {path}]"
        if middle <= 0:
            # Few but very long lines: a head and tail of lines would be all of it.
            return f"{text[:LINE_CHARS]}\n{where}\n{text[-LINE_CHARS:]}"
        first = [line[:LINE_CHARS] for line in lines[:head]]
        last = [line[:LINE_CHARS] for line in lines[head + middle :]]
        return "\n".join([*first, f"({middle} lines left out)", where, *last])
