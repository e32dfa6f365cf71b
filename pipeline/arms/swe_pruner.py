"""SWE-Pruner: a served reranker answers the agent's own question.

See docs/methods.md, Line pruners.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.line_pruning import ServedPruning
from pipeline.fields.bounds import Natural, Share
from pipeline.fields.identity import Science
from pipeline.views.focus import focus_question
from pipeline.views.trajectory import Message, Trajectory, Turn


@dataclass(frozen=True, kw_only=True)
class SwePruner(ServedPruning):
    """A 0.6B reranker behind HTTP keeps what answers the agent's own question."""

    source: ClassVar[str] = "arXiv 2601.16746"
    tuned: ClassVar[str | None] = "threshold"
    asks_focus: ClassVar[bool] = True

    kind: Science[Literal["swe_pruner"]] = "swe_pruner"
    model: Science[str] = "unnamed"
    """Which model the server has: another one is another treatment."""
    threshold: Science[Share] = 0.5
    chunk_overlap_tokens: Science[Natural] = 50

    def query(self, turn: Turn, message: Message, trajectory: Trajectory) -> str | None:  # noqa: ARG002
        """Return the agent's own question about the output; None where it asked nothing."""
        return focus_question(turn, message)
