"""LLMLingua-2: a token classifier ranks lines (docs/methods.md, Line pruners)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.line_pruning import LocalPruning
from pipeline.fields.bounds import Share
from pipeline.fields.identity import Science


@dataclass(frozen=True, kw_only=True)
class LlmLingua2(LocalPruning):
    """A token classifier says what is worth keeping; the best lines stay up to a rate."""

    source: ClassVar[str] = "arXiv 2403.12968; over lines here"
    tuned: ClassVar[str | None] = "rate"

    kind: Science[Literal["llmlingua2"]] = "llmlingua2"
    rate: Science[Share] = 0.33
    """Share of the output's tokens that stays."""
