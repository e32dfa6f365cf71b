"""The commands of calls that failed some turns ago are cut (docs/methods.md, What people run)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.shell.files import is_protected
from pipeline.views.commands import command_of, cuts
from pipeline.views.policy import Ask, Policy
from pipeline.views.shown import older_turns
from pipeline.views.trajectory import Edit, Edits, Message, Trajectory

CUT_FAILED = "[Command of a failed call omitted.]"


@dataclass(frozen=True, kw_only=True)
class PurgeErrors(Parameters):
    """The command text of calls that failed some turns ago is cut; the error stays."""

    source: ClassVar[str] = "practice: dynamic context pruning for opencode"
    example: ClassVar[Mapping[str, Any]] = {"after_turns": 2}

    kind: Science[Literal["purge_errors"]] = "purge_errors"
    after_turns: Science[Natural] = 4
    protect_files: Science[tuple[str, ...]] = ()

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return PurgeErrorsPolicy(self)


class PurgeErrorsPolicy:
    """The command of a call that failed some turns ago is cut; its error stays."""

    def __init__(self, spec: PurgeErrors) -> None:
        self._spec = spec

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for failed calls more than `after_turns` turns old."""
        # The newest turn is 0 turns ago, so one more than `after_turns` stay.
        old = older_turns(trajectory, 1 + self._spec.after_turns)
        return cuts(old, standing, self._cut, "purge")

    def _cut(self, message: Message) -> str | None:
        failed = message.returncode is not None and message.returncode != 0
        if not failed or len(command_of(message)) <= len(CUT_FAILED):
            return None
        return None if is_protected(message.command, self._spec.protect_files) else CUT_FAILED
