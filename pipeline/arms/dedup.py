"""Repeated commands: only the newest output stays (docs/methods.md, What people run)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.shell.files import is_protected
from pipeline.views.commands import command_of
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import (
    content_edit,
    older_outputs,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Trajectory


@dataclass(frozen=True, kw_only=True)
class Dedup(Parameters):
    """Of the outputs of one repeated command, only the newest stays."""

    source: ClassVar[str] = "practice: dynamic context pruning for opencode"

    kind: Science[Literal["dedup"]] = "dedup"
    protect_last_turns: Science[Natural] = 1
    protect_files: Science[tuple[str, ...]] = ()
    """Shell patterns; outputs of commands that name a matching file are never edited."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return DedupPolicy(self, context)


class DedupPolicy:
    """The same command again: only the newest output stays."""

    def __init__(self, spec: Dedup, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for outputs whose command has been run again."""
        newest = {(m.tool, command_of(m)): m.index for m in trajectory.observations()}
        return [
            content_edit(m, placeholder_text(self._placeholder, m), "dedup")
            for m in older_outputs(trajectory, standing, self._spec.protect_last_turns)
            if command_of(m)
            and newest[m.tool, command_of(m)] != m.index
            and not is_protected(m.command, self._spec.protect_files)
        ]
