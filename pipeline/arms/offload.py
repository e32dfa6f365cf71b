"""A very long output moves to a file in the sandbox; the view keeps its head and tail.

The policy says what is shown and which files that needs (`KeepsFiles`); the agent writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import content_edit, is_removed, newest_turn
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory

REASON = "offload"
LINE_CHARS = 400
"""Lines of the head and tail are cut to this length."""


def offload_path(folder: str, message: Message) -> str:
    """Return where in the sandbox the output of `message` is stored."""
    return f"{folder.rstrip('/')}/output_{message.index}.txt"


@dataclass(frozen=True, kw_only=True)
class Offload(Parameters):
    """A very long output goes to a file in the sandbox; its head and tail stay."""

    source: ClassVar[str] = "deepagents"
    example: ClassVar[Mapping[str, Any]] = {"min_tokens": 60, "head_lines": 1, "tail_lines": 1}

    kind: Science[Literal["offload"]] = "offload"
    min_tokens: Science[Natural] = 20_000
    """Of the output as it arrived, before any elision."""
    head_lines: Science[Natural] = 5
    tail_lines: Science[Natural] = 5
    folder: Science[str] = "/tmp/outputs"

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return OffloadPolicy(self)


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
