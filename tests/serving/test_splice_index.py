"""What the store gives is the prompt's text, whatever came before: edits, preemption, failures.

The engine here keeps token ids where vLLM keeps keys and values, so that a wrong piece shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from pipeline.serving.splice.index import Asked, Span, SpliceIndex
from pipeline.serving.splice.matching import holes, planned_pieces

BLOCK = 16


@dataclass
class Engine:
    """Paged attention without attention: a request's cache is the list of its token ids."""

    index: SpliceIndex
    rng: Random
    parts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Token id and the position it was computed at."""
    seen: list[list[int]] = field(default_factory=list)
    n_moved: int = 0
    n_claimed: int = 0
    n_requests: int = 0

    def run(self, asked: Asked, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Compute a request; it may be preempted, fail to load, or be computed in chunks."""
        self.n_requests += 1
        req_id, ids = str(self.n_requests), [*prompt, *answer]
        self.index.begin(req_id, asked, prompt)
        known = len(prompt)
        cache = self._admitted(req_id, ids[:known])
        while len(cache) < len(ids) - 1:
            n = self.rng.choice((1, 7, 40, 400))
            before = len(cache)
            after = min(before + n, max(known, before + 1), len(ids) - 1)
            cache += [(ids[at], at) for at in range(before, after)]
            self._save(self.index.computed(req_id, before, after), cache)
            known = max(known, after + 1)
            if self.rng.random() < 0.05:
                cache = self._admitted(req_id, ids[:known])
        self.index.finish(req_id, ids, completed=True)
        self.seen.append(ids[:-1])
        self._free()

    def _admitted(self, req_id: str, ids: list[int]) -> list[tuple[int, int]]:
        local = max((self._hit(ids, before) for before in self.seen), default=0)
        local = min(local, (len(ids) - 1) // BLOCK * BLOCK)
        claim = self.index.claim(req_id, ids, local)
        cache = [(token, at) for at, token in enumerate(ids[:local])]
        found = claim if claim.n_tokens else None
        saved = self.index.admitted(req_id, local + claim.n_tokens, found)
        self._save(saved, cache)
        for span in claim.spans:
            stored = self.parts[span.part][span.start : span.start + span.n]
            assert [at for _, at in stored] == list(range(span.origin, span.origin + span.n))
            cache += [(token, local) for token, _ in stored]
        assert [token for token, _ in cache] == ids[: len(cache)]
        assert len(cache) < len(ids)
        self.n_moved += claim.n_moved
        self.n_claimed += claim.n_tokens
        if found and self.rng.random() < 0.1:
            # The load failed: the engine goes back to what it had, and computes.
            del cache[local:]
            self.index.computed(req_id, local, local)
        return cache

    def _hit(self, ids: Sequence[int], before: Sequence[int]) -> int:
        n = next((i for i, (a, b) in enumerate(zip(ids, before, strict=False)) if a != b),
                 min(len(ids), len(before)))  # fmt: skip
        return n // BLOCK * BLOCK if self.rng.random() < 0.7 else 0

    def _save(self, saved: Sequence[tuple[int, Span]], cache: list[tuple[int, int]]) -> None:
        for at, span in saved:
            tokens = [token for token, _ in cache[at : at + span.n]]
            self.parts[span.part] = [(t, span.origin + i) for i, t in enumerate(tokens)]

    def _free(self) -> None:
        for part in self.index.freed():
            del self.parts[part]
        assert self.index.n_tokens == sum(map(len, self.parts.values()))


class Agent:
    """A run whose history grows and is edited."""

    def __init__(self, engine: Engine, name: str, rng: Random) -> None:
        self.engine, self.name, self.rng = engine, name, rng
        self.outputs: list[list[int]] = [[rng.randrange(5000) for _ in range(60)]]
        self.last: list[int] = []

    def step(self, repair: int = 0) -> None:
        rng = self.rng
        for place in range(1, len(self.outputs)):
            if len(self.outputs[place]) > 5 and rng.random() < 0.3:
                self.outputs[place] = [1, 2, 3] if rng.random() < 0.7 else []
        ids = [token for output in self.outputs for token in output]
        pieces = tuple(planned_pieces(self.last, ids, repair))
        for end in holes(pieces):
            self.engine.run(Asked(self.name, pieces, is_part=True), ids[:end], [0])
        answer = [rng.randrange(5000) for _ in range(rng.randrange(1, 50))]
        self.engine.run(Asked(self.name, pieces), ids, answer)
        self.last = [*ids, *answer]
        self.outputs += [answer, [rng.randrange(5000) for _ in range(rng.randrange(20, 300))]]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_claimed_is_the_prompts_own_text_through_a_whole_run(seed: int) -> None:
    rng = Random(seed)
    engine = Engine(SpliceIndex(max_tokens=100_000), rng)
    agents = [Agent(engine, f"run{n}", rng) for n in range(2)]
    for _ in range(25):
        rng.choice(agents).step(repair=rng.choice((0, 16)))
    assert engine.n_moved > 1000
    for agent in agents:
        engine.index.begin("end", Asked(agent.name, is_end=True), [0])
    engine._free()
    assert engine.parts == {}


def test_over_the_limit_the_run_that_waited_longest_is_forgotten_and_computes() -> None:
    rng = Random(1)
    engine = Engine(SpliceIndex(max_tokens=3000), rng)
    agents = [Agent(engine, f"run{n}", rng) for n in range(4)]
    for turn in range(40):
        agents[turn % 4].step()
        # Two runs of up to 1,500 tokens fit; a part that is being used is not torn down.
        assert engine.index.n_tokens <= 3000 + 128


def test_a_run_that_ended_gives_nothing_to_one_of_the_same_name() -> None:
    engine = Engine(SpliceIndex(max_tokens=10_000), Random(0))
    ids = list(range(500))
    engine.run(Asked("a"), ids, [1, 2])
    assert engine.index.n_tokens > 0
    engine.index.begin("end", Asked("a", is_end=True), [0])
    engine._free()
    engine.seen.clear()
    engine.index.begin("x", Asked("a", tuple(planned_pieces(ids, ids))), ids)
    assert engine.index.claim("x", ids, 0).n_tokens == 0


def test_one_runs_text_is_not_given_to_another() -> None:
    engine = Engine(SpliceIndex(max_tokens=10_000), Random(0))
    ids = list(range(500))
    engine.run(Asked("a"), ids, [1, 2])
    engine.index.begin("x", Asked("b", tuple(planned_pieces(ids, ids))), ids)
    assert engine.index.claim("x", ids, 0).n_tokens == 0


def test_an_aborted_request_leaves_the_runs_text_as_it_was() -> None:
    engine = Engine(SpliceIndex(max_tokens=10_000), Random(0))
    ids, other = list(range(500)), list(range(600, 900))
    engine.run(Asked("a"), ids, [1, 2])
    engine.index.begin("gone", Asked("a"), other)
    engine.index.admitted("gone", 0, None)
    engine.index.computed("gone", 0, 200)
    engine.index.finish("gone", other, completed=False)
    engine.index.freed()
    engine.index.begin("x", Asked("a", tuple(planned_pieces(ids, ids))), ids)
    assert engine.index.claim("x", ids, 0).n_tokens == 499


@pytest.mark.parametrize(
    "params",
    [None, 3, {}, {"splice": 3}, {"splice": {"run": 1}}, {"splice": {"run": "a", "pieces": [[1]]}},
     {"splice": {"run": "a", "pieces": [[0, -1, 2]]}}, {"line_scores": {}}],
)  # fmt: skip
def test_params_that_cannot_be_read_ask_for_nothing(params: object) -> None:
    assert Asked.of(params) is None
