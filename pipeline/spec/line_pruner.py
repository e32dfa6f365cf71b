"""Parameters of the line pruners that stand beside the model server (METHODS 2, "Line pruners").

What decides which lines stay is science; where the pruner's model lies and runs is not. Defaults
are the published settings. The rules are in `pipeline/pruners`, what is asked and shown in
`pipeline/context/line_pruners`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pipeline.spec.bounds import Count, Natural, Seconds, Share
from pipeline.spec.identity import Runtime, Science
from pipeline.spec.strict import Strict

FOCUS_ARGUMENT = "context_focus_question"
"""The optional argument of the bash tool in which the agent says what it wants to know."""

WindowTokens = Annotated[int, Field(ge=64)]
"""With room for special tokens, and for some of a query and of a text."""


@dataclass(frozen=True, kw_only=True)
class LinePruning(Strict):
    """What every line pruner has: from which size on it acts, and what it may have to be told."""

    min_chars: Science[Natural] = 500
    """Shorter outputs are left alone."""
    query_chars: Science[Count] = 2000
    """Longest query that is put to the pruner; its end is kept."""


@dataclass(frozen=True, kw_only=True)
class LocalPruning(LinePruning):
    """A line pruner whose model runs in the worker."""

    model: Science[str]
    """Name on the hub, looked for in the offline cache, or a folder."""
    revision: Science[str | None] = None
    path: Runtime[str | None] = None
    """Folder where the model was staged, instead of the cache."""
    device: Runtime[str] = "cpu"
    """As PyTorch names it: `cpu`, `cuda`, `cuda:1`."""
    dtype: Science[Literal["float32", "bfloat16"]] = "float32"
    window_tokens: Science[WindowTokens] = 512
    """Most tokens that the model sees at once, special ones included."""
    batch_windows: Runtime[Count] = 8
    """Windows in one forward pass, which bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class LlmLingua2(LocalPruning):
    """A token classifier says what is worth keeping; the best lines stay up to a rate."""

    kind: Science[Literal["llmlingua2"]] = "llmlingua2"
    rate: Science[Share] = 0.33
    """Share of the output's tokens that stays."""


@dataclass(frozen=True, kw_only=True)
class SelectiveContext(LocalPruning):
    """Lines that a language model could have guessed go."""

    kind: Science[Literal["selective_context"]] = "selective_context"
    reduce_ratio: Science[Share] = 0.5
    """Share of the output's tokens that goes."""
    window_tokens: Science[WindowTokens] = 1024


@dataclass(frozen=True, kw_only=True)
class LongCodeZip(LocalPruning):
    """Functions that make the query less surprising stay, up to a rate."""

    kind: Science[Literal["longcodezip"]] = "longcodezip"
    rate: Science[Share] = 0.5
    chunk_lines: Science[Count] = 40
    """Longest chunk, where an output has no functions or very long ones."""
    window_tokens: Science[WindowTokens] = 4096


@dataclass(frozen=True, kw_only=True)
class Rag(LocalPruning):
    """A reranker picks the windows of lines that best fit the query."""

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


@dataclass(frozen=True, kw_only=True)
class SwePruner(LinePruning):
    """A 0.6B reranker behind HTTP keeps what answers the agent's own question."""

    kind: Science[Literal["swe_pruner"]] = "swe_pruner"
    model: Science[str] = "unnamed"
    """Which model the server has: another one is another treatment."""
    threshold: Science[Share] = 0.5
    chunk_overlap_tokens: Science[Natural] = 50
    url: Runtime[str | None] = None
    """Address of the server, such as http://127.0.0.1:8000; must be given."""
    timeout_s: Runtime[Seconds] = 60.0


LocalPruner = LlmLingua2 | SelectiveContext | LongCodeZip | Rag
LinePrunerSpec = LocalPruner | SwePruner
"""Arms with a line pruner beside the model server."""
