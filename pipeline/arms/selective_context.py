"""Selective Context: removes lines that a model could have guessed.

See docs/methods.md, Line pruners.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.line_pruning import LocalPruning, WindowTokens
from pipeline.fields.bounds import Share
from pipeline.fields.identity import Science


@dataclass(frozen=True, kw_only=True)
class SelectiveContext(LocalPruning):
    """Lines that a language model could have guessed are removed."""

    source: ClassVar[str] = "arXiv 2310.06201; over lines here"
    tuned: ClassVar[str | None] = "reduce_ratio"

    kind: Science[Literal["selective_context"]] = "selective_context"
    reduce_ratio: Science[Share] = 0.5
    """Share of the output's tokens that goes."""
    window_tokens: Science[WindowTokens] = 1024
