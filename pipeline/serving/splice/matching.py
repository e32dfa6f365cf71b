"""Which stretches of a prompt stood in the prompt before it, in order. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

ANCHOR_TOKENS = 16
"""So many equal tokens, found once in either prompt, tie two places together."""
MIN_PIECE_TOKENS = 32
"""Shorter survivors are computed: one more request would cost more."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`n` tokens that stood at `old` and stand at `new`."""

    new: int
    old: int
    n: int

    @property
    def end(self) -> int:
        """Where the piece ends in the new prompt."""
        return self.new + self.n

    def without_first(self, n: int) -> "Piece":
        """Return the piece without its first `n` tokens; `n` of 0 or less remain none."""
        return replace(self, new=self.new + n, old=self.old + n, n=max(self.n - n, 0))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many leading tokens are equal."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def surviving_pieces(old: Sequence[int], new: Sequence[int]) -> list[Piece]:
    """Return the stretches of `new` that are in `old`, in the order of both, none overlapping.

    The common prefix comes first, be it empty. Behind it, runs of `ANCHOR_TOKENS` tokens that occur
    once in either rest are tied together, the longest chain in the order of both is kept (patience
    sorting), and every tie is stretched as far as the tokens are equal. Text without such a run,
    because it is short or repeats itself, is left out: it is computed.
    """
    start = common_prefix(old, new)
    pieces = [Piece(0, 0, start)]
    for new_at, old_at in _chain(_anchors(old, new, start)):
        last = pieces[-1]
        if new_at < last.end:
            continue
        back = 0
        while (
            new_at - back > last.end
            and old_at - back > last.old + last.n
            and new[new_at - back - 1] == old[old_at - back - 1]
        ):
            back += 1
        if old_at - back < last.old + last.n:
            continue
        n = common_prefix(old[old_at:], new[new_at:])
        pieces.append(Piece(new_at - back, old_at - back, back + n))
    return pieces


def planned_pieces(old: Sequence[int], new: Sequence[int], repair_tokens: int = 0) -> list[Piece]:
    """Return the prefix, and the pieces behind it that are worth moving, less what is repaired.

    Args:
        old: the last prompt and its answer.
        new: the prompt.
        repair_tokens: first tokens of every moved piece that are computed.
    """
    first, *moved = surviving_pieces(old, new)
    repaired = [piece.without_first(repair_tokens) for piece in moved]
    return [first, *(piece for piece in repaired if piece.n >= MIN_PIECE_TOKENS)]


def holes(pieces: Sequence[Piece]) -> list[int]:
    """Return where text ends that must be computed before the piece behind it can be taken over."""
    return [after.new for before, after in pairwise(pieces) if after.new > before.end]


def _anchors(old: Sequence[int], new: Sequence[int], start: int) -> list[tuple[int, int]]:
    """Return places (new, old) of runs that occur once behind `start` in each, ordered by new."""
    in_old, in_new = (_unique_runs(tokens, start) for tokens in (old, new))
    return [(at, in_old[run]) for run, at in in_new.items() if run in in_old]


def _unique_runs(tokens: Sequence[int], start: int) -> dict[bytes, int]:
    data, size = array("q", tokens).tobytes(), array("q").itemsize
    width = ANCHOR_TOKENS * size
    found: dict[bytes, int] = {}
    repeated: set[bytes] = set()
    for at in range(start, len(tokens) - ANCHOR_TOKENS + 1):
        run = data[at * size : at * size + width]
        if run in found:
            repeated.add(run)
        found[run] = at
    return {run: at for run, at in found.items() if run not in repeated}


def _chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest chain of pairs, ordered by the first, whose second rises too."""
    tails: list[int] = []
    places: list[int] = []
    before: list[int | None] = []
    for place, (_, old) in enumerate(pairs):
        at = bisect_left(tails, old)
        before.append(places[at - 1] if at else None)
        if at == len(tails):
            tails.append(old)
            places.append(place)
        else:
            tails[at], places[at] = old, place
    chain: list[tuple[int, int]] = []
    place_or_none = places[-1] if places else None
    while place_or_none is not None:
        chain.append(pairs[place_or_none])
        place_or_none = before[place_or_none]
    return chain[::-1]
