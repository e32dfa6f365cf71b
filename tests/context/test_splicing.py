"""Splicing: what of a changed message survives, against an alignment computed in full."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.accounting.cache_cost import CacheAccount, Piece
from pipeline.accounting.splicing import surviving_runs
from tests.context.counters import WordCounter


def survivors(old: str, new: str) -> str:
    return "".join(new[start:end] for start, end in surviving_runs(old, new))


def longest_alignment(old: list[str], new: list[str]) -> int:
    """The slow reference: the longest common subsequence, every pair compared."""
    row = [0] * (len(new) + 1)
    for item in old:
        before = row
        row = [0]
        for place, other in enumerate(new):
            best = before[place] + 1 if item == other else max(row[-1], before[place + 1])
            row.append(best)
    return row[-1]


def is_subsequence(part: str, whole: str) -> bool:
    characters = iter(whole)
    return all(c in characters for c in part)


def test_a_placeholder_keeps_nothing_of_the_output() -> None:
    assert survivors("alpha beta\n", "[omitted]\n") == "\n"


def test_the_head_and_tail_of_a_cut_output_survive() -> None:
    old = "".join(f"line {k}\n" for k in range(100))
    new = old[:300] + "\n[cut 400 characters]\n" + old[-200:]
    assert survivors(old, new).count("line") == new.count("line")
    assert "cut" not in survivors(old, new)


def test_lines_between_removed_ones_survive() -> None:
    old = "".join(f"x{k} = {k}\n" for k in range(9))
    new = "x0 = 0\n(filtered 3 lines)\nx4 = 4\n(filtered 2 lines)\nx7 = 7\nx8 = 8\n"
    found = survivors(old, new)
    assert [found.count(line) for line in ("x0 = 0\n", "x4 = 4\n", "x7 = 7\n", "x8 = 8\n")] == [
        1
    ] * 4
    assert "filtered" not in found


def test_text_that_changed_its_order_counts_once() -> None:
    assert len(survivors("first part\nsecond part\n", "second part\nfirst part\n")) < 24


lines = st.lists(st.sampled_from(["a", "b", "c d", "", "x = 1", "def f():"]), max_size=14)


@given(lines, st.data())
@settings(max_examples=200, deadline=None)
def test_of_a_text_that_lost_lines_all_the_others_survive(
    old: list[str], data: st.DataObject
) -> None:
    kept = [line for line in old if data.draw(st.booleans())]
    found = survivors("".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in kept))
    assert found.count("\n") == len(kept)


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
@settings(max_examples=300, deadline=None)
def test_what_survives_stands_in_both_texts_in_order(old: str, new: str) -> None:
    found = survivors(old, new)
    assert is_subsequence(found, old)
    assert is_subsequence(found, new)
    assert len(found) <= longest_alignment(list(old), list(new))


def test_a_word_that_was_cut_is_another_token() -> None:
    assert survivors("alpha beta", "alpha be") == "alpha "
    assert survivors("alpha beta", "ta") == ""


# --- the account ---------------------------------------------------------------------------------
class Slow:
    """The view from its definition: each prompt against all that was sent, by message."""

    def __init__(self) -> None:
        self.sent: dict[int, list[str]] = {}

    def spliced(self, pieces: list[Piece], answer: tuple[int, str]) -> int:
        found = 0
        for piece in pieces:
            versions = self.sent.get(piece.origin or 0, [])
            words = piece.text.split()
            found += max((longest_alignment(v.split(), words) for v in versions), default=0)
        for piece in pieces:
            self.sent.setdefault(piece.origin or 0, []).append(piece.text)
        self.sent.setdefault(answer[0], []).append(answer[1])
        return min(found, sum(piece.n_tokens for piece in pieces) - 1)


def piece(origin: int, text: str) -> Piece:
    return Piece(text=text, n_tokens=len(text.split()), origin=origin)


texts = st.lists(st.sampled_from(["a b\n", "c\n", "d e f\n", "g\n"]), min_size=1, max_size=4)
changes = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["cut", "gone", "back"])))


@given(st.lists(st.tuples(texts, changes), min_size=1, max_size=7))
@settings(max_examples=150, deadline=None)
def test_spliced_is_what_the_slow_reading_finds(calls: list[tuple[list[str], Any]]) -> None:
    account, slow = CacheAccount(WordCounter()), Slow()
    plain: list[str] = []
    shown: list[str] = []
    for number, (added, edited) in enumerate(calls):
        plain.append("".join(added))
        shown.append(plain[-1])
        for at, change in edited:
            if at < len(shown):
                parts = plain[at].splitlines(keepends=True)
                cut = parts[0] + "[cut]\n" + (parts[-1] if len(parts) > 1 else "")
                shown[at] = {"cut": cut, "gone": "[gone]\n", "back": plain[at]}[change]
        pieces = [piece(k, text) for k, text in enumerate(shown)]
        answer = (len(plain), f"said {number}\n")
        cost = account.charge(pieces, completion=answer[1], answer=answer[0])
        assert cost.spliced_tokens == max(cost.lcp_tokens, slow.spliced(pieces, answer))
        plain.append(answer[1])
        shown.append(answer[1])


def test_equal_text_in_another_message_is_new() -> None:
    account = CacheAccount(WordCounter())
    account.charge([piece(0, "a b c\n")])
    assert account.charge([piece(1, "x\n"), piece(2, "a b c\n")]).spliced_tokens == 0


def test_an_edit_in_the_middle_leaves_what_follows_it_spliced() -> None:
    account = CacheAccount(WordCounter())
    prompt = [piece(k, f"word{k} " * 50 + "\n") for k in range(10)]
    account.charge(prompt)
    cost = account.charge([*prompt[:2], piece(2, "[omitted]\n"), *prompt[3:]])
    assert (cost.lcp_tokens, cost.spliced_tokens) == (100, 450)


def test_a_hybrid_finds_the_state_of_the_last_prompt_within_the_prefix() -> None:
    def sized(origin: int, n: int) -> Piece:
        return Piece(text=f"{origin}-{n} " * n, n_tokens=n, origin=origin)

    account = CacheAccount(WordCounter(), block_tokens=16)
    first, second, third = sized(0, 100), sized(1, 100), sized(2, 100)
    assert account.charge([first]).lcp_state_tokens == 0
    assert account.charge([first, second]).lcp_state_tokens == 96
    assert account.charge([first, second, third]).lcp_state_tokens == 192
    # The second message changes: of the states only the first prompt's is within the prefix.
    assert account.charge([first, sized(1, 3), third]).lcp_state_tokens == 96


def test_a_state_kept_at_intervals_is_found_within_the_prefix() -> None:
    def sized(origin: int, n: int) -> Piece:
        return Piece(text=f"{origin}-{n} " * n, n_tokens=n, origin=origin)

    every = CacheAccount(WordCounter(), block_tokens=16, state_interval_tokens=32)
    first, second = sized(0, 100), sized(1, 100)
    every.charge([first, second, sized(2, 100)])
    assert every.charge([first, second, sized(2, 4)]).lcp_state_tokens == 192
