"""Lines of a tool output: which tokens they hold, which of them stay, and how the rest is shown.

Owns the steps from scores per token to the text that a line pruner leaves (docs/methods.md, Line
pruners). A line ends at its newline, which belongs to it; a carriage return alone does not end it.
Pure: the scores, and the decision to prune at all, come from elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

FILTERED = "(filtered {n} lines)"
"""What stands where lines were removed."""


def split_lines(text: str) -> list[str]:
    r"""Return the lines of `text`, each with its newline; joined they are `text` again.

    Only ``\n`` ends a line, so that ``\r\n`` stays whole and a progress bar is one line.
    """
    lines = text.split("\n")
    whole = [line + "\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole


def count_lines(text: str) -> int:
    """Return how many lines `split_lines` finds."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLines:
    """The first and the last line on which each token of an output has characters."""

    first: IntArray
    last: IntArray
    n_lines: int

    @property
    def tokens_per_line(self) -> IntArray:
        """How many tokens vote on each line."""
        return self.per_line(np.ones(len(self.first), dtype=np.int64))

    def per_line(self, values: IntArray) -> IntArray:
        """Return the sum of `values` (one per token) over the tokens of each line."""
        steps = np.zeros(self.n_lines + 1, dtype=np.int64)
        np.add.at(steps, self.first, values)
        np.add.at(steps, self.last + 1, -values)
        return np.cumsum(steps)[: self.n_lines]

    def on_tokens(self, kept: BoolArray) -> BoolArray:
        """Return for every token whether it touches a line of `kept`."""
        before = np.concatenate(([0], np.cumsum(kept)))
        touched: BoolArray = before[self.last + 1] > before[self.first]
        return touched


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputTokens:
    """Where an output's tokens are in a prompt, and on which of its lines they lie."""

    start: int
    """The first token with a character of the output."""
    end: int
    """One past the last such token."""
    lines: TokenLines


def output_tokens(
    offsets: Sequence[tuple[int, int]] | IntArray, text: str, text_start: int
) -> OutputTokens:
    """Return the tokens of `text`, which starts at character `text_start` of the prompt.

    A token that spans a newline votes on both lines; so does each of the tokens that share one
    multi-byte character, which tokenizers give the same offsets. A token that reaches over the
    output's ends (the template's own newline, for one) counts with the part that is inside.

    Args:
        offsets: Start and end character of every token of the prompt, in order.
        text: The output as it stands in the prompt.
        text_start: Where it begins, in characters.

    Raises:
        ValueError: the offsets do not cover the text.
    """
    spans = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    text_end = text_start + len(text)
    inside = np.flatnonzero(
        (spans[:, 1] > text_start) & (spans[:, 0] < text_end) & (spans[:, 1] > spans[:, 0])
    )
    if not len(inside):
        raise ValueError(f"no token covers characters {text_start} to {text_end} of the prompt")
    start, end = int(inside[0]), int(inside[-1]) + 1
    # Special tokens without characters may stand between: they vote where the one before does.
    begins = np.clip(spans[start:end, 0] - text_start, 0, len(text) - 1)
    ends = np.clip(spans[start:end, 1] - text_start - 1, begins, len(text) - 1)
    lengths = np.fromiter(map(len, split_lines(text)), dtype=np.int64)
    line_starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return OutputTokens(
        start=start,
        end=end,
        lines=TokenLines(
            first=np.searchsorted(line_starts, begins, side="right") - 1,
            last=np.searchsorted(line_starts, ends, side="right") - 1,
            n_lines=len(lengths),
        ),
    )


def kept_by_vote(token_kept: BoolArray, lines: TokenLines) -> BoolArray:
    """Return for every line whether more than half of its tokens are kept.

    A line without tokens stays, since nothing asked for its removal.
    """
    votes, voters = lines.per_line(token_kept.astype(np.int64)), lines.tokens_per_line
    kept: BoolArray = (2 * votes > voters) | (voters == 0)
    return kept


def gaps_filled(kept: BoolArray) -> BoolArray:
    """Return `kept` with every single removed line between two kept ones kept too."""
    filled = kept.copy()
    if len(kept) > 2:
        filled[1:-1] |= kept[:-2] & kept[2:]
    return filled


def kept_lines(
    scores: FloatArray, lines: TokenLines, *, threshold: float = 0.5, fill_gaps: bool = True
) -> BoolArray:
    """Return for every line whether it stays.

    Args:
        scores: The head's probability of keeping, one per token. NaN (not scored) keeps.
        lines: Where the tokens lie.
        threshold: A token is kept from this score on.
        fill_gaps: Keep a single line between two kept ones.
    """
    if len(scores) != len(lines.first):
        raise ValueError(f"{len(scores)} scores for {len(lines.first)} tokens of the output")
    kept = kept_by_vote(~(np.asarray(scores, dtype=np.float64) < threshold), lines)
    return gaps_filled(kept) if fill_gaps else kept


def kept_text(text: str, kept: BoolArray | Sequence[bool], *, marker: str = FILTERED) -> str:
    """Return the kept lines of `text`, each run of removed ones as one line that counts them.

    Where every line stays, the text is returned unchanged.

    Raises:
        ValueError: there are more or fewer decisions than lines.
    """
    lines = split_lines(text)
    if len(lines) != len(kept):
        raise ValueError(f"{len(kept)} decisions for {len(lines)} lines")
    return "".join(_shown(lines, kept, marker))


def _shown(lines: Sequence[str], kept: BoolArray | Sequence[bool], marker: str) -> Iterator[str]:
    for stays, group in groupby(range(len(lines)), key=lambda i: bool(kept[i])):
        places = list(group)
        if stays:
            yield from (lines[i] for i in places)
        else:
            # A marker at the end of a text without a final newline ends without one too.
            newline = "\n" if lines[places[-1]].endswith("\n") else ""
            yield marker.replace("{n}", str(len(places))) + newline
