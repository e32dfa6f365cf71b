"""Masking, and an occasional summary in place of the oldest turns.

See docs/methods.md, Masking and summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pipeline.arms.llm_summary import LlmSummary, LlmSummaryPolicy
from pipeline.arms.observation_mask import ObservationMask, ObservationMaskPolicy
from pipeline.arms.parameters import Parameters, PolicyContext
from pipeline.fields.bounds import Amount, Count, Natural
from pipeline.fields.identity import Science
from pipeline.views.policy import Ask, Policy
from pipeline.views.trajectory import Edit, Edits, Trajectory, merged


@dataclass(frozen=True, kw_only=True)
class Hybrid(Parameters):
    """Masking, and a summary once many turns are unsummarized."""

    source: ClassVar[str] = "arXiv 2508.21433"
    tuned: ClassVar[str | None] = "summarise_turns"
    example: ClassVar[Mapping[str, Any]] = {
        "summarise_turns": 3,
        "keep_last_turns": 3,
        "mask_keep_last_turns": 1,
    }

    kind: Science[Literal["hybrid"]] = "hybrid"
    summarise_turns: Science[Count] = 43
    keep_last_turns: Science[Natural] = 10
    mask_keep_last_turns: Science[Natural] = 10
    polling: Science[Natural] = 0
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None
    summary_reads: Science[Literal["view", "raw"]] = "view"
    """Whether the summary is made from masked outputs, as the agent sees them, or whole ones."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the rule at work in one run."""
        return HybridPolicy(self, context)


class HybridPolicy:
    """Masks old outputs, and summarizes the oldest turns with the masks in place."""

    def __init__(self, spec: Hybrid, context: PolicyContext) -> None:
        mask = ObservationMask(keep_last_turns=spec.mask_keep_last_turns, polling=spec.polling)
        summary = LlmSummary(
            summarise_turns=spec.summarise_turns,
            keep_last_turns=spec.keep_last_turns,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
        )
        self._mask = ObservationMaskPolicy(mask, context)
        self._summary = LlmSummaryPolicy(summary, reads_raw=spec.summary_reads == "raw")

    def decide(self, trajectory: Trajectory, standing: Edits, ask: Ask) -> Sequence[Edit]:
        """Return the masks and, when it is due, the new summary and what it replaces."""
        masks = self._mask.decide(trajectory, standing, ask)
        return [*masks, *self._summary.decide(trajectory, merged(standing, masks), ask)]
