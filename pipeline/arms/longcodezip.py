"""LongCodeZip: functions that make the query less surprising stay.

See docs/methods.md, Line pruners.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.arms.line_pruning import LocalPruning, WindowTokens
from pipeline.fields.bounds import Count, Share
from pipeline.fields.identity import Science


@dataclass(frozen=True, kw_only=True)
class LongCodeZip(LocalPruning):
    """Functions that make the query less surprising stay, up to a rate."""

    source: ClassVar[str] = "arXiv 2510.00446; its coarse step"
    tuned: ClassVar[str | None] = "rate"

    kind: Science[Literal["longcodezip"]] = "longcodezip"
    rate: Science[Share] = 0.5
    chunk_lines: Science[Count] = 40
    """Longest chunk, where an output has no functions or very long ones."""
    window_tokens: Science[WindowTokens] = 4096
