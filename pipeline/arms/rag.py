"""Retrieval: a reranker picks windows of lines (docs/methods.md, Line pruners)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.line_pruning import LocalPruning, WindowTokens
from pipeline.fields.bounds import Count, Natural
from pipeline.fields.identity import Science


@dataclass(frozen=True, kw_only=True)
class Rag(LocalPruning):
    """A reranker picks the windows of lines that best fit the query."""

    source: ClassVar[str] = "the retrieval baseline of arXiv 2607.18213, with bge-reranker-v2-m3"
    tuned: ClassVar[str | None] = "keep_windows"

    kind: Science[Literal["rag"]] = "rag"
    window_lines: Science[Count] = 40
    overlap_lines: Science[Natural] = 10
    keep_windows: Science[Count] = 3
    window_tokens: Science[WindowTokens] = 1024

    def __post_init__(self) -> None:
        if self.overlap_lines >= self.window_lines:
            raise ValueError(
                f"overlap_lines is {self.overlap_lines}; it must be below window_lines"
                f" ({self.window_lines})"
            )
