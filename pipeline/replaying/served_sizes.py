"""How large each message of a recording was in the server's prompts.

An offline count knows neither the chat template nor, often, the served vocabulary. But where a
prompt only continues the one before, what came in between is known: the answer has its completion
tokens, and the outputs have the rest, P[k+1] - P[k] - C[k]. Messages of rewritten prompts, and
those without usage, get the recording's mean ratio of served to offline tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.accounting.cache_cost import Piece

MARKER_TOKENS = 16
"""What a template puts around a message, at most; DeepSeek's takes 15 around a tool's output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Continued:
    """What one prompt added to the one before."""

    pieces: Sequence[Piece]
    """As rendered, with offline counts."""
    answer: int | None
    """Index of the message that the call before was answered with."""
    answer_tokens: int | None
    """Its completion tokens, as far as the template renders them."""
    growth: int
    """Served tokens of all pieces together."""


class ServedSizes:
    """Served sizes of messages, whole and edited."""

    def __init__(self, first: Sequence[Piece], continued: Sequence[Continued]) -> None:
        """Learn the sizes from all prompts that continued another one.

        Args:
            first: of the first prompt; what it has beyond their offline counts is the fixed part.
            continued: the other prompts that only added to the one before.
        """
        self._known = {p.origin: (p.n_tokens, p.n_tokens) for p in first if p.origin is not None}
        """Offline and served tokens by message index."""
        offline = served = 0
        grown: list[tuple[int, int]] = []
        """Offline and served tokens of what came beside the answer, by step."""
        for step in continued:
            before = offline, served
            for piece, size in zip(step.pieces, _sizes(step), strict=True):
                if piece.origin is not None:
                    self._known[piece.origin] = (piece.n_tokens, size)
                if piece.origin != step.answer:
                    offline += piece.n_tokens
                    served += size
            grown.append((offline - before[0], served - before[1]))
        self.ratio = served / offline if offline and served else 1.0
        """Served tokens of one offline token."""
        self.served_tokens = served
        """What the ratio was learned from."""
        self.residual_tokens = sum(abs(b - a * self.ratio) for a, b in grown)
        """By how much one ratio for all steps misses them, taken together."""

    def piece(self, piece: Piece) -> Piece:
        """Return a piece with its served size instead of its offline one."""
        known = None if piece.origin is None else self._known.get(piece.origin)
        if known is None:
            return replace(piece, n_tokens=round(piece.n_tokens * self.ratio))
        offline, served = known
        if piece.n_tokens == offline or not offline:
            return replace(piece, n_tokens=served)
        # What the template puts around an output stays when the output is cut.
        around = min(max(served - offline * self.ratio, 0.0), MARKER_TOKENS, served)
        content = (served - around) * piece.n_tokens / offline
        return replace(piece, n_tokens=round(around + content))


def _sizes(step: Continued) -> list[int]:
    """Return the served size of each piece; together they are the growth."""
    own = [k for k, piece in enumerate(step.pieces) if piece.origin == step.answer]
    weights = [piece.n_tokens for piece in step.pieces]
    if step.answer_tokens is None or not own or step.answer_tokens > step.growth:
        return _shared(step.growth, weights)
    others = [0 if k in own else weight for k, weight in enumerate(weights)]
    if len(own) == len(weights):
        return _shared(step.growth, weights)
    sizes = _shared(step.growth - step.answer_tokens, others, never=own)
    sizes[own[0]] = step.answer_tokens
    return sizes


def _shared(total: int, weights: Sequence[int], never: Sequence[int] = ()) -> list[int]:
    """Return whole numbers that share `total` by weight; evenly where all weights are 0."""
    shares = [0.0 if k in never else float(weight) for k, weight in enumerate(weights)]
    if not any(shares):
        shares = [0.0 if k in never else 1.0 for k in range(len(weights))]
    whole = sum(shares)
    sizes, given, reached = [], 0, 0.0
    for share in shares:
        reached += share
        size = round(total * reached / whole) - given
        sizes.append(size)
        given += size
    return sizes
