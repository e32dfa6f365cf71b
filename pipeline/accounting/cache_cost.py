"""Prefix-cache accounting: which part of each prompt a cache that never forgets would hold.

Three of the four views (docs/methods.md, Cache accounting): the longest common prefix with anything
the same run sent or received before, that rounded down to the server's block, and what an engine
could give that keeps the keys of all text that stays, wherever it moves (*spliced*). The fourth is
what the server reports, and never mixed with these. One object serves worker, ingest and replay.
Not here: prices, and how a message becomes a piece (`prompt_pieces`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.accounting.prefix_tree import IdPrefix, PrefixTree
from pipeline.accounting.served_scale import ServedScale
from pipeline.accounting.splicing import surviving_runs
from pipeline.views.policy import TokenCounter


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One message of a prompt as the template renders it."""

    text: str
    n_tokens: int
    origin: int | None = None
    """Index of its message, which tells two messages with the same text apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCache:
    """How one prompt divides; `lcp_tokens + new_tokens + rebilled_tokens == prompt_tokens`."""

    prompt_tokens: int
    lcp_tokens: int
    """Held by an earlier prompt + completion of the run, at most `prompt_tokens - 1`."""
    lcp_block_tokens: int | None
    """The same rounded down to whole blocks; None where the block size is unknown."""
    new_tokens: int
    rebilled_tokens: int
    """Outside the prefix, of messages that an earlier prompt held."""
    lcp_state_tokens: int | None
    """What a hybrid model can reuse of the prefix: up to where an earlier prompt left its state."""
    spliced_tokens: int
    """In an earlier prompt or completion, in the same message and order, wherever it now stands."""


class CacheAccount:
    """The account of one run, charged with every call in order, auxiliary ones included."""

    def __init__(
        self,
        counter: TokenCounter,
        *,
        block_tokens: int | None = None,
        state_interval_tokens: int = 0,
    ) -> None:
        """Start with nothing sent.

        Args:
            counter: of tokens.
            block_tokens: of the server's cache; None where it is unknown.
            state_interval_tokens: a hybrid model's server keeps its state every so many tokens too,
                a multiple of the block; 0: at the last whole block of each prompt only.
        """
        self._counter = counter
        self._block = block_tokens
        self._state_interval = state_interval_tokens
        self._states: list[int] = []
        self._texts = PrefixTree()
        self._ids = IdPrefix()
        self._pieces: list[Piece] = []
        self._unit_ends: list[int] = []
        self._token_ends: list[int] = []
        self._scale = ServedScale()
        self._held: set[tuple[int | None, str]] = set()
        self._versions: dict[int, list[str]] = {}
        self._expected: tuple[Piece, int] | None = None
        """The last answer as a piece, and where it ends in the server's prompt."""

    def charge(
        self,
        pieces: Sequence[Piece],
        *,
        kept: int = 0,
        prompt_tokens: int | None = None,
        completion: str = "",
        answer: int | None = None,
        completion_tokens: int | None = None,
        prompt_ids: Sequence[int] | None = None,
        completion_ids: Sequence[int] = (),
        aside: bool = False,
    ) -> CallCache:
        """Return how the next prompt divides, and remember it with its completion.

        Args:
            pieces: the prompt's messages from the `kept`-th on.
            kept: how many leading messages are those of the call before; only a saving of work.
            prompt_tokens: the server's count, to which offline ones are stretched. None: their sum.
            completion: the answer as the next prompt would render it.
            answer: index of the message that the answer becomes.
            completion_tokens: of it as rendered, by the server.
            prompt_ids: the prompt's token ids. While every call of the run has them, the prefix is
                found on them and is exact to the token.
            completion_ids: the answer's.
            aside: a conversation of its own (a summary, for one), after which the next prompt's
                `kept` again means the last prompt that was none.
        """
        if aside:
            return self._aside(pieces, prompt_tokens, completion, prompt_ids, completion_ids)
        if kept == 0:
            kept = _equal_start(self._pieces, pieces)
            pieces = pieces[kept:]
        self._keep(kept)
        self._append(pieces)
        offline = self._token_ends[-1] if self._token_ends else 0
        total = offline if prompt_tokens is None else prompt_tokens
        covered, prefix = self._text_prefix(kept, completion)
        self._place_answer(kept)
        self._scale.add(offline, total)
        exact = self._ids.charge(prompt_ids, completion_ids)
        lcp = min(round(self._scale.at(prefix)) if exact is None else exact, max(total - 1, 0))
        rebilled = min(round(self._held_outside(covered, prefix)), total - lcp)
        spliced = max(lcp, min(round(self._spliced(kept)), max(total - 1, 0)))
        if rebilled == 0 and lcp == total - 1 and prefix == offline and total:
            # The one token that is always computed again, of a prompt that was sent before.
            rebilled = 1
        self._remember(pieces, completion, answer)
        self._expected = None
        if answer is not None and completion_tokens is not None:
            known = Piece(text=completion, n_tokens=0, origin=answer)
            self._expected = known, total + completion_tokens
        return CallCache(
            prompt_tokens=total,
            lcp_tokens=lcp,
            lcp_block_tokens=None if self._block is None else lcp - lcp % self._block,
            new_tokens=total - lcp - rebilled,
            rebilled_tokens=rebilled,
            lcp_state_tokens=self._state_prefix(lcp, total),
            spliced_tokens=spliced,
        )

    def _place_answer(self, kept: int) -> None:
        """Note where the last answer ends, if this prompt goes on with it."""
        if self._expected is None or kept >= len(self._pieces):
            return
        answer, end = self._expected
        piece = self._pieces[kept]
        if (piece.origin, piece.text) == (answer.origin, answer.text):
            self._scale.add(self._token_ends[kept], end)

    def _remember(self, pieces: Sequence[Piece], completion: str, answer: int | None) -> None:
        sent = [(piece.origin, piece.text) for piece in pieces]
        if completion and answer is not None:
            sent.append((answer, completion))
        for origin, text in sent:
            if origin is not None and (origin, text) not in self._held:
                self._versions.setdefault(origin, []).append(text)
        # A completion is in no prompt yet: only as part of one could it be re-billed.
        self._held.update((piece.origin, piece.text) for piece in pieces)

    def _state_prefix(self, lcp: int, total: int) -> int | None:
        """Return up to where a state of the model is kept, and note the one of this prompt."""
        if self._block is None:
            return None
        # States beyond the prefix are of a history that was edited.
        self._states = [place for place in self._states if place <= lcp]
        newest = self._states[-1] if self._states else 0
        if self._state_interval:
            newest = max(newest, lcp - lcp % self._state_interval)
        self._states.append(total - total % self._block)
        return newest

    def _spliced(self, kept: int) -> float:
        """Return the served tokens that an earlier prompt or completion had in the same message."""
        found = self._scale.at(self._token_ends[kept - 1]) if kept else 0.0
        for piece, end in zip(self._pieces[kept:], self._token_ends[kept:], strict=True):
            share = self._surviving_share(piece)
            if share:
                found += share * (self._scale.at(end) - self._scale.at(end - piece.n_tokens))
        return found

    def _surviving_share(self, piece: Piece) -> float:
        if (piece.origin, piece.text) in self._held:
            return 1.0
        versions = () if piece.origin is None else self._versions.get(piece.origin, ())
        if not versions:
            return 0.0
        return max(self._share_in(version, piece.text) for version in versions)

    def _share_in(self, old: str, new: str) -> float:
        """Return the share of a text's tokens in runs that an earlier version of it had."""
        if old == new:
            return 1.0
        whole = self._counter.count(new)
        runs = surviving_runs(old, new)
        survived = sum(self._counter.count(new[start:end]) for start, end in runs)
        return min(survived / whole, 1.0) if whole else 0.0

    def _aside(
        self,
        pieces: Sequence[Piece],
        prompt_tokens: int | None,
        completion: str,
        prompt_ids: Sequence[int] | None,
        completion_ids: Sequence[int],
    ) -> CallCache:
        main = self._pieces, self._unit_ends, self._token_ends, self._states
        scale, self._scale = self._scale, ServedScale()
        expected = self._expected
        place = self._texts.cursor
        self._pieces, self._unit_ends, self._token_ends, self._states = [], [], [], []
        cost = self.charge(
            pieces,
            prompt_tokens=prompt_tokens,
            completion=completion,
            prompt_ids=prompt_ids,
            completion_ids=completion_ids,
        )
        self._pieces, self._unit_ends, self._token_ends, self._states = main
        self._scale = scale
        self._expected = expected
        self._texts.cursor = place
        return cost

    def _keep(self, kept: int) -> None:
        if not 0 <= kept <= len(self._pieces):
            raise ValueError(f"kept {kept} messages of a prompt of {len(self._pieces)}")
        del self._pieces[kept:], self._unit_ends[kept:], self._token_ends[kept:]
        self._scale.go_back(self._token_ends[-1] if kept else 0)

    def _append(self, pieces: Sequence[Piece]) -> None:
        units = self._unit_ends[-1] if self._unit_ends else 0
        tokens = self._token_ends[-1] if self._token_ends else 0
        for piece in pieces:
            units += len(piece.text)
            tokens += piece.n_tokens
            self._pieces.append(piece)
            self._unit_ends.append(units)
            self._token_ends.append(tokens)

    def _text_prefix(self, kept: int, completion: str) -> tuple[int, int]:
        """Return whole messages and offline tokens of the prefix sent before."""
        kept_units = self._unit_ends[kept - 1] if kept else 0
        self._texts.go_back(kept_units)
        new = "".join(piece.text for piece in self._pieces[kept:])
        units = kept_units + self._texts.go_on(new)
        self._texts.go_on(completion)
        whole = bisect_right(self._unit_ends, units)
        tokens = self._token_ends[whole - 1] if whole else 0
        inside = units - (self._unit_ends[whole - 1] if whole else 0)
        if inside:
            piece = self._pieces[whole]
            # The last common token may end differently in the two texts, so it does not count.
            common = self._counter.count(piece.text[:inside]) - 1
            tokens += max(0, min(common, piece.n_tokens))
        return whole, tokens

    def _held_outside(self, whole: int, prefix: int) -> float:
        """Return the served tokens beyond the prefix of messages that an earlier prompt held."""
        held = 0.0
        for piece, end in zip(self._pieces[whole:], self._token_ends[whole:], strict=True):
            if (piece.origin, piece.text) in self._held:
                start = max(end - piece.n_tokens, prefix)
                held += self._scale.at(end) - self._scale.at(start)
        return held


def _equal_start(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Return how many leading pieces are the same."""
    pairs = enumerate(zip(before, now, strict=False))
    shorter = min(len(before), len(now))
    return next((place for place, (old, new) in pairs if old != new), shorter)
