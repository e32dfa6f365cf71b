"""What a server keeps of each run's text, and which of it a prompt can have. Pure: no tensors.

The scheduler's side of the store. A `History` says for every token of a run's last prompt and
answer which stored part holds its key and value and at which position it was computed; the tensors
are the worker's, by part number. Keys are always rotated from where they were computed, so that
rounding does not add up over many edits. Parts that no history holds any more are freed; over the
limit, the runs that waited longest are forgotten, and their next prompt is computed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.serving.splice.matching import Piece, common_prefix

PART_TOKENS = 128
"""Longest part: what stays of a part when most of its text was cut is at most so much."""


@dataclass(frozen=True, slots=True)
class Span:
    """`n` tokens from `start` of stored part `part`, whose first was computed at `origin`."""

    part: int
    start: int
    n: int
    origin: int

    def cut(self, lo: int, hi: int) -> "Span":
        """Return tokens lo to hi of the span."""
        return Span(self.part, self.start + lo, hi - lo, self.origin + lo)


@dataclass
class History:
    """Text, and where its keys are."""

    ids: list[int] = field(default_factory=list)
    """May be shorter than `n_tokens`: tokens being generated are known later."""
    spans: list[Span] = field(default_factory=list)
    n_tokens: int = 0

    def append(self, spans: Iterable[Span]) -> None:
        """Add text at the end."""
        for span in spans:
            self.spans.append(span)
            self.n_tokens += span.n

    def between(self, lo: int, hi: int) -> list[Span]:
        """Return the spans of tokens lo to hi, as far as there are any."""
        found, at = [], 0
        for span in self.spans:
            a, b = max(lo - at, 0), min(hi - at, span.n)
            if a < b:
                found.append(span.cut(a, b))
            at += span.n
            if at >= hi:
                break
        return found

    def truncate(self, n_tokens: int) -> None:
        """Forget what is behind `n_tokens`."""
        if n_tokens < self.n_tokens:
            self.spans, self.n_tokens = self.between(0, n_tokens), n_tokens
            del self.ids[n_tokens:]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says of itself (`kv_transfer_params["splice"]`)."""

    run: str
    pieces: tuple[Piece, ...] = ()
    """What of the prompt stood in the run's last whole prompt and answer."""
    is_part: bool = False
    """The prompt is the beginning of one that follows, which has the same pieces."""
    is_end: bool = False
    """The run is over: forget it."""

    @classmethod
    def of(cls, params: Any) -> "Asked | None":
        """Return what was asked; None where nothing was, or nothing that can be read."""
        said = params.get("splice") if isinstance(params, dict) else None
        if not isinstance(said, dict) or not isinstance(said.get("run"), str):
            return None
        try:
            pieces = tuple(Piece(*map(int, piece)) for piece in said.get("pieces", ()))
        except (TypeError, ValueError):
            return None
        if any(min(piece.new, piece.old, piece.n) < 0 for piece in pieces):
            return None
        return cls(said["run"], pieces, bool(said.get("part")), bool(said.get("end")))


@dataclass
class Claim:
    """Text that a request takes over from the store, behind what the server's own cache has."""

    start: int
    spans: list[Span] = field(default_factory=list)
    n_tokens: int = 0
    n_moved: int = 0
    """Of those, text behind an edit: approximate, since it had read what was cut."""

    def take(self, spans: Sequence[Span], *, moved: bool) -> int:
        """Add spans; return how many tokens they are."""
        n = sum(span.n for span in spans)
        self.spans += spans
        self.n_tokens += n
        self.n_moved += n if moved else 0
        return n


@dataclass
class Live:
    """A request that is being computed."""

    asked: Asked
    prompt_ids: Sequence[int]
    growing: History = field(default_factory=History)


@dataclass
class _Run:
    last: History = field(default_factory=History)
    """The last whole prompt with its answer."""
    begun: History = field(default_factory=History)
    """The beginning of the prompt under way, made by earlier requests for parts of it."""
    live: set[str] = field(default_factory=set)


class SpliceIndex:
    """All runs of a server."""

    def __init__(self, max_tokens: int) -> None:
        """Start empty.

        Args:
            max_tokens: how many tokens all parts together may hold.
        """
        self._max_tokens = max_tokens
        self._runs: dict[str, _Run] = {}
        """Those that waited longest first."""
        self._live: dict[str, Live] = {}
        self._parts: dict[int, tuple[str, int]] = {}
        """Part to its run and tokens."""
        self._next = 0
        self._freed: list[int] = []

    @property
    def n_tokens(self) -> int:
        """How many tokens are stored."""
        return sum(n for _, n in self._parts.values())

    def live(self, req_id: str) -> Live | None:
        """Return a request that takes part, if it does."""
        return self._live.get(req_id)

    def begin(self, req_id: str, asked: Asked, prompt_ids: Sequence[int]) -> None:
        """Note a new request; one that ends its run frees what the run had."""
        if asked.is_end:
            self._forget(asked.run)
            return
        run = self._runs.pop(asked.run, None) or _Run()
        self._runs[asked.run] = run
        run.live.add(req_id)
        self._live[req_id] = Live(asked, prompt_ids)

    def claim(self, req_id: str, ids: Sequence[int], start: int) -> Claim:
        """Return what of a prompt the store has in one stretch from `start`.

        The request's own text before a preemption and the parts of the prompt computed for it come
        first, then the pieces of the run's last prompt, as far as the tokens really are the same.
        One token is left: the engine must compute something.

        Args:
            req_id: of the request.
            ids: the prompt, and what was generated before a preemption.
            start: what the server's own cache has.
        """
        claim, live = Claim(start), self._live[req_id]
        run, limit = self._runs.get(live.asked.run, _Run()), len(ids) - 1
        live.growing.truncate(len(live.prompt_ids))
        live.growing.ids = list(live.prompt_ids[: live.growing.n_tokens])
        at = start
        while at < limit:
            n = 0
            for exact in (live.growing, run.begun):
                known = min(common_prefix(exact.ids, ids), exact.n_tokens, limit)
                if known > at:
                    n = claim.take(exact.between(at, known), moved=False)
                    break
            else:
                n = self._from_last(claim, live.asked.pieces, run.last, ids, at)
            if not n:
                break
            at += n
        return claim

    def _from_last(
        self, claim: Claim, pieces: Sequence[Piece], last: History, ids: Sequence[int], at: int
    ) -> int:
        piece = next((p for p in pieces if p.new <= at < p.end), None)
        if piece is None:
            return 0
        rest = piece.without_first(at - piece.new)
        end = min(rest.n, last.n_tokens - rest.old, len(ids) - 1 - at)
        n = common_prefix(last.ids[rest.old : rest.old + end], ids[at : at + end])
        return claim.take(last.between(rest.old, rest.old + n), moved=piece.new > 0)

    def admitted(self, req_id: str, n_computed: int, claim: Claim | None) -> list[tuple[int, Span]]:
        """Lay the stored text under a request that is admitted; return what has to be saved.

        Args:
            req_id: of the request.
            n_computed: tokens that it has, from the server's cache and the claim together.
            claim: what is loaded.

        Returns:
            Places and spans of text that only the server's own cache has.
        """
        live = self._live[req_id]
        ids, start = live.prompt_ids, n_computed if claim is None else claim.start
        known = self.claim(req_id, [*ids, -1], 0) if start else Claim(0)
        growing = live.growing = History(ids=list(ids))
        at = 0
        for span in known.spans:
            if at >= start:
                break
            growing.append([span.cut(0, min(span.n, start - at))])
            at = growing.n_tokens
        saved = self.computed(req_id, at, start)
        if claim is not None and growing.n_tokens == start:
            growing.append(claim.spans)
        return saved

    def computed(self, req_id: str, before: int, after: int) -> list[tuple[int, Span]]:
        """Note that a step computes a request's tokens `before` to `after`; return what to save.

        A request that starts before what is noted already had a load that failed: what came of it
        is forgotten. While the store is full nothing is saved, and may be later.
        """
        live, saved = self._live[req_id], []
        growing = live.growing
        growing.truncate(before)
        while growing.n_tokens < after and self.n_tokens < self._max_tokens:
            at = growing.n_tokens
            span = Span(self._next, 0, min(PART_TOKENS, after - at), at)
            self._parts[self._next] = (live.asked.run, span.n)
            self._next += 1
            growing.append([span])
            saved.append((at, span))
        return saved

    def finish(self, req_id: str, ids: Sequence[int], *, completed: bool) -> None:
        """End a request; its text becomes what the run's next one starts from.

        Args:
            req_id: of the request.
            ids: its prompt and answer.
            completed: False where it was aborted: then its run's text stays as it was.
        """
        live = self._live.pop(req_id)
        run = self._runs.get(live.asked.run)
        if run is None:
            self._free_unused(live.asked.run)
            return
        run.live.discard(req_id)
        if completed and live.growing.n_tokens >= len(live.prompt_ids):
            text = live.growing
            # The last token's key is computed with the token behind it.
            text.truncate(len(ids) - 1)
            text.ids = list(ids[: text.n_tokens])
            if live.asked.is_part:
                run.begun = text
            else:
                run.last, run.begun = text, History()
        self._free_unused(live.asked.run)

    def freed(self) -> list[int]:
        """Return the parts that can go, each once; the limit is kept here."""
        for name in [name for name, run in self._runs.items() if not run.live]:
            if self.n_tokens <= self._max_tokens:
                break
            self._forget(name)
        freed, self._freed = self._freed, []
        return freed

    def _forget(self, name: str) -> None:
        self._runs.pop(name, None)
        self._free_unused(name)

    def _free_unused(self, name: str) -> None:
        run = self._runs.get(name)
        histories = [run.last, run.begun] if run else []
        histories += [live.growing for live in self._live.values() if live.asked.run == name]
        held = {span.part for history in histories for span in history.spans}
        gone = [
            part for part, (owner, _) in self._parts.items() if owner == name and part not in held
        ]
        for part in gone:
            del self._parts[part]
        self._freed += gone
