"""Outputs that nothing has referred to for some turns are pruned.

See docs/methods.md, Random deletion.

A turn refers to an output when the assistant's text, reasoning or commands name a file that the
output's command names, or repeat one of its longer lines. The rule is ours, since the source
leaves it open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.references import refers
from pipeline.views.shown import (
    acted_turns,
    content_edit,
    older_outputs,
    placeholder_text,
)
from pipeline.views.trajectory import Edit, Edits, Trajectory

REASON = "reuse"


@dataclass(frozen=True, kw_only=True)
class ReusePrune(Parameters):
    """Outputs that nothing referred to for some turns go."""

    source: ClassVar[str] = "asked for by arXiv 2610.35496; the rule is ours"
    tuned: ClassVar[str | None] = "unused_turns"
    example: ClassVar[Mapping[str, Any]] = {"unused_turns": 2}

    kind: Science[Literal["reuse_prune"]] = "reuse_prune"
    unused_turns: Science[Natural] = 10
    protect_last_turns: Science[Natural] = 1

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return ReusePrunePolicy(self, context)


class ReusePrunePolicy:
    """Prunes what went unused for `unused_turns` turns."""

    def __init__(self, spec: ReusePrune, context: PolicyContext) -> None:
        self._spec = spec
        self._placeholder = context.placeholder

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:  # noqa: ARG002
        """Return the edits for outputs whose last use is long enough ago."""
        turns = acted_turns(trajectory)
        keep = max(self._spec.unused_turns, self._spec.protect_last_turns)
        recent = turns[max(0, len(turns) - self._spec.unused_turns) :]
        return [
            content_edit(message, placeholder_text(self._placeholder, message), REASON)
            for message in older_outputs(trajectory, standing, keep)
            if not any(refers(later, message) for later in recent)
        ]
