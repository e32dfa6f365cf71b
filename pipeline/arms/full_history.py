"""The baseline: nothing is removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.trajectory import Edit, Edits, Trajectory


@dataclass(frozen=True, kw_only=True)
class FullHistory(Parameters):
    """Nothing is ever edited: the baseline."""

    source: ClassVar[str] = "the baseline of the founding proposal"

    kind: Science[Literal["full_history"]] = "full_history"

    @property
    def prunes(self) -> bool:
        """False: the elision that all arms share is not an arm's decision."""
        return False

    def build(self, context: PolicyContext) -> Policy:  # noqa: ARG002
        """Return the rule at work in one run."""
        return FullHistoryPolicy()


class FullHistoryPolicy:
    """Edits nothing."""

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return no edits."""
        return ()
