"""The incremental account against one that compares everything.

See docs/methods.md, Cache accounting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.accounting.cache_cost import CacheAccount, CallCache, Piece
from pipeline.accounting.prefix_tree import PrefixTree, common_length
from pipeline.accounting.served_scale import ServedScale
from tests.context.counters import CharCounter

ELSEWHERE: dict[str, Any] = {"lcp_state_tokens": None, "spliced_tokens": 0}
"""Fields that have a reference of their own in test_splicing."""


@dataclass(frozen=True)
class Call:
    kept: int
    new: tuple[str, ...]
    completion: str
    aside: bool


def agreed(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def piece(text: str) -> Piece:
    return Piece(text=text + ";", n_tokens=len(text) + 1)


class SlowAccount:
    """Compares each prompt with every earlier prompt + completion, message by message."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.sent: list[str] = []
        self.held: set[str] = set()

    def charge(self, pieces: Sequence[Piece], completion: str) -> CallCache:
        prompt = "".join(p.text for p in pieces)
        common = max((agreed(prompt, s) for s in self.sent), default=0)
        place, prefix, held = 0, 0, 0
        for p in pieces:
            inside = max(0, min(common - place, len(p.text)))
            # Inside a message that parts, the last common token may end differently in the two.
            tokens = inside if inside == len(p.text) else max(0, inside - 1)
            prefix += tokens
            held += p.n_tokens - tokens if p.text in self.held else 0
            place += len(p.text)
        lcp = max(0, min(prefix, place - 1))
        if prefix == place and place and not held:
            held = 1
        self.sent.append(prompt + completion)
        self.held.update(p.text for p in pieces)
        return CallCache(
            prompt_tokens=place,
            lcp_tokens=lcp,
            lcp_block_tokens=lcp // self.block * self.block,
            new_tokens=place - lcp - held,
            rebilled_tokens=held,
            **ELSEWHERE,
        )


texts = st.text(alphabet="ab", max_size=6)
calls = st.lists(
    st.builds(
        Call,
        kept=st.integers(0, 6),
        new=st.lists(texts, max_size=4).map(tuple),
        completion=texts,
        aside=st.booleans(),
    ),
    max_size=12,
)


@given(calls, st.booleans())
@settings(max_examples=150, deadline=None)
def test_account_agrees_with_comparing_every_prompt_with_every_earlier_one(
    history: list[Call], hinted: bool
) -> None:
    account, slow = CacheAccount(CharCounter(), block_tokens=4), SlowAccount(4)
    last: list[Piece] = []
    for call in history:
        new = [piece(t) for t in call.new]
        kept = 0 if call.aside else min(call.kept, len(last))
        prompt = last[:kept] + new
        cost = account.charge(
            new if hinted else prompt,
            kept=kept if hinted else 0,
            completion=call.completion,
            aside=call.aside,
        )
        assert replace(cost, **ELSEWHERE) == slow.charge(prompt, call.completion)
        if not call.aside:
            last = prompt


@given(st.lists(st.tuples(st.integers(0, 30), texts, texts), max_size=12))
def test_with_token_ids_the_prefix_is_exact_to_the_token(
    history: list[tuple[int, str, str]],
) -> None:
    account = CacheAccount(CharCounter(), block_tokens=4)
    last, sent = "", []
    for kept, new, completion in history:
        prompt = last[:kept] + new
        cost = account.charge(
            [Piece(text=prompt, n_tokens=len(prompt))],
            prompt_tokens=len(prompt),
            prompt_ids=[ord(c) for c in prompt],
            completion_ids=[ord(c) for c in completion],
        )
        common = max((agreed(prompt, s) for s in sent), default=0)
        assert cost.lcp_tokens == max(0, min(common, len(prompt) - 1))
        assert cost.lcp_tokens + cost.new_tokens + cost.rebilled_tokens == len(prompt)
        sent.append(prompt + completion)
        last = prompt


@given(st.text("ab"), st.text("ab"), st.integers(0, 3), st.integers(0, 3))
def test_common_length_is_where_two_strings_part(a: str, b: str, i: int, j: int) -> None:
    i, j = min(i, len(a)), min(j, len(b))
    assert common_length(a, i, b, j) == agreed(a[i:], b[j:])


def test_common_length_of_long_strings_that_part_anywhere() -> None:
    text = "x" * 5000
    for place in (0, 1, 63, 64, 65, 319, 320, 4999):
        other = text[:place] + "y" + text[place + 1 :]
        assert common_length(text, 0, other, 0) == place


def test_a_message_that_was_sent_before_and_lost_its_prefix_is_rebilled() -> None:
    account = CacheAccount(CharCounter(), block_tokens=4)
    system, old, pruned, newest = piece("s" * 9), piece("o" * 9), piece("p"), piece("n" * 9)
    account.charge([system, old, newest])
    cost = account.charge([system, pruned, newest])
    assert (cost.prompt_tokens, cost.lcp_tokens, cost.lcp_block_tokens) == (22, 10, 8)
    assert (cost.new_tokens, cost.rebilled_tokens) == (2, 10)


def test_a_completion_is_a_hit_once_the_next_prompt_repeats_it() -> None:
    account = CacheAccount(CharCounter())
    first, answer, result = piece("task"), piece("answer"), piece("result")
    account.charge([first], completion=answer.text)
    cost = account.charge([answer, result], kept=1)
    assert (cost.lcp_tokens, cost.new_tokens, cost.rebilled_tokens) == (12, 7, 0)
    assert cost.lcp_block_tokens is None


def test_an_identical_prompt_is_hit_but_for_its_last_token() -> None:
    account = CacheAccount(CharCounter())
    account.charge([piece("abc")])
    cost = account.charge([piece("abc")])
    assert (cost.lcp_tokens, cost.rebilled_tokens, cost.new_tokens) == (3, 1, 0)


def test_counts_are_scaled_to_what_the_server_counted() -> None:
    account = CacheAccount(CharCounter(), block_tokens=16)
    account.charge([piece("a" * 99)], prompt_tokens=200)
    cost = account.charge([piece("b" * 99)], kept=1, prompt_tokens=400)
    assert (cost.prompt_tokens, cost.lcp_tokens, cost.new_tokens) == (400, 200, 200)
    assert cost.lcp_block_tokens == 192


def test_an_earlier_prompts_size_holds_at_its_place_in_a_later_one() -> None:
    account = CacheAccount(CharCounter())
    first, second, third = (piece(letter * 99) for letter in "abc")
    account.charge([first], prompt_tokens=500)
    account.charge([second], kept=1, prompt_tokens=620)
    # Parting at the end of the first message is parting at 500, whatever the later sizes say.
    cost = account.charge([third], kept=1, prompt_tokens=900)
    assert (cost.lcp_tokens, cost.new_tokens, cost.rebilled_tokens) == (500, 400, 0)
    again = account.charge([second, third], kept=1, prompt_tokens=1020)
    assert again.prompt_tokens == 1020
    assert again.lcp_tokens + again.new_tokens + again.rebilled_tokens == 1020


sizes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 900)), max_size=8)


@given(sizes, st.integers(0, 500), st.integers(0, 500))
def test_places_in_the_servers_prompt_are_in_order_and_exact_where_known(
    known: list[tuple[int, int]], one: int, other: int
) -> None:
    scale = ServedScale()
    for offline, served in known:
        scale.add(offline, served)
    low, high = sorted((one, other))
    assert 0 <= scale.at(low) <= scale.at(high)
    if known and known[-1][0] > 0:
        assert scale.at(known[-1][0]) == known[-1][1]


def test_keeping_more_messages_than_the_last_prompt_had_is_refused() -> None:
    account = CacheAccount(CharCounter())
    with pytest.raises(ValueError, match="kept 1 messages of a prompt of 0"):
        account.charge([], kept=1)


def test_a_place_in_the_tree_stays_valid_when_its_edge_is_split_from_elsewhere() -> None:
    tree = PrefixTree()
    tree.go_on("abcdef")
    place = tree.cursor
    tree.cursor = tree.root
    assert tree.go_on("abx") == 2
    tree.cursor = place
    tree.go_back(4)
    assert tree.go_on("ef") == 2


def test_an_answer_takes_as_many_tokens_of_the_next_prompt_as_the_server_made() -> None:
    """Stretched evenly over answer and output, the prefix ended at 110 of these 140."""
    account = CacheAccount(CharCounter())
    task, answer, result = (
        Piece(text=letter * n, n_tokens=n, origin=origin)
        for origin, (letter, n) in enumerate([("t", 100), ("a", 10), ("r", 90)])
    )
    account.charge(
        [task], prompt_tokens=100, completion=answer.text, answer=1, completion_tokens=40
    )
    cost = account.charge([answer, result], kept=1, prompt_tokens=200)
    assert (cost.lcp_tokens, cost.new_tokens) == (140, 60)
