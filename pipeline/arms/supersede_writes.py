"""Superseded writes: cut once the file was read again (docs/methods.md, What people run)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.shell.files import is_protected, read_by, same_file, written_by
from pipeline.views.commands import cuts
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import acted_turns, older_turns
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory

CUT_BODY = "[Content omitted; the file was read again later.]"


@dataclass(frozen=True, kw_only=True)
class SupersedeWrites(Parameters):
    """What a command wrote into a file is cut once the file has been read again."""

    source: ClassVar[str] = "practice: dynamic context pruning for opencode"

    kind: Science[Literal["supersede_writes"]] = "supersede_writes"
    protect_last_turns: Science[Natural] = 1
    protect_files: Science[tuple[str, ...]] = ()

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return SupersedeWritesPolicy(self)


class SupersedeWritesPolicy:
    """What a command wrote is cut once the file has been read again."""

    def __init__(self, spec: SupersedeWrites) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for writes whose file a later command printed."""
        turns = acted_turns(trajectory)
        # By the last part of the path, since few words of a command can name the same file.
        read_at: dict[str, dict[str, int]] = {}
        for turn in turns:
            for m in turn.observations:
                if m.is_prunable and m.returncode in (0, None):
                    for word in read_by(m.command or ""):
                        read_at.setdefault(word.rpartition("/")[2], {})[word] = m.index
        old = older_turns(trajectory, self._spec.protect_last_turns)
        return cuts(old, standing, lambda m: self._cut(m, read_at), "supersede")

    def _cut(self, message: Message, read_at: Mapping[str, Mapping[str, int]]) -> str | None:
        text = message.command or ""
        for write in reversed(written_by(text)):
            if write.end - write.start <= len(CUT_BODY) or is_protected(
                write.path, self._spec.protect_files
            ):
                continue
            reads = read_at.get(write.path.rpartition("/")[2], {})
            if any(at > message.index and same_file(write.path, w) for w, at in reads.items()):
                text = text[: write.start] + CUT_BODY + text[write.end :]
        return None if text == message.command else text
