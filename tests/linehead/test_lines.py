"""Which tokens lie on which lines, which lines stay, and what is shown instead of the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.linehead.lengths import EDGES, N_BUCKETS, bucket_name, length_bucket
from pipeline.views.kept_lines import (
    TokenLines,
    count_lines,
    gaps_filled,
    kept_by_vote,
    kept_lines,
    kept_text,
    output_tokens,
    split_lines,
)

TEXTS = st.text(alphabet=st.sampled_from("ab \t\r\né漢🙂\x0c\u2028"), max_size=60)


def lines_of(tokens: list[str], *, before: str = "", after: str = "") -> tuple[list[int], ...]:
    """Return first and last line of each token of an output cut into `tokens`."""
    found = tokens_in(tokens, before, after)
    return found.lines.first.tolist(), found.lines.last.tolist()


def tokens_in(tokens: list[str], before: str = "", after: str = ""):
    pieces = [p for p in (before, *tokens, after) if p]
    ends = np.cumsum([len(p) for p in pieces])
    offsets = list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    return output_tokens(offsets, "".join(tokens), len(before))


def test_a_token_with_its_newline_lies_on_the_line_that_it_ends():
    assert lines_of(["ab", "c\n", "d", "\n"]) == ([0, 0, 1, 1], [0, 0, 1, 1])


def test_a_token_across_a_newline_votes_on_both_lines():
    assert lines_of(["a\n  ", "b"]) == ([0, 1], [1, 1])


def test_one_token_of_newlines_votes_on_every_empty_line():
    assert lines_of(["a", "\n\n\n", "b"]) == ([0, 0, 3], [0, 2, 3])


def test_a_carriage_return_before_the_newline_opens_no_line():
    assert lines_of(["a\r", "\nb", "\r\n"]) == ([0, 0, 1], [0, 1, 1])


def test_a_carriage_return_alone_and_a_form_feed_end_no_line():
    assert split_lines("10%\r20%\x0c\u2028\nx") == ["10%\r20%\x0c\u2028\n", "x"]


def test_bytes_of_one_character_all_vote_on_its_line():
    # Two tokens make up the snowman: tokenizers give both the whole character.
    found = output_tokens([(0, 2), (2, 3), (2, 3), (3, 4)], "a\n☃b", 0)
    assert found.lines.first.tolist() == [0, 1, 1, 1]
    assert found.lines.tokens_per_line.tolist() == [1, 3]


def test_a_token_shared_with_the_template_counts_with_its_part_inside():
    # The template's newlines before and after merge with the output's own characters.
    text = "<tool>\nab\ncd\n</tool>"
    found = output_tokens([(0, 6), (6, 8), (8, 10), (10, 12), (12, 21)], "ab\ncd", 7)
    assert text[7:12] == "ab\ncd"
    assert (found.start, found.end) == (1, 4)
    assert found.lines.first.tolist() == [0, 0, 1]
    assert found.lines.last.tolist() == [0, 0, 1]


def test_a_newline_that_only_the_template_wrote_is_no_line():
    found = output_tokens([(0, 1), (1, 3), (3, 5)], "a", 0)
    assert (found.start, found.end, found.lines.n_lines) == (0, 1, 1)


def test_tokens_without_characters_belong_to_nothing():
    found = output_tokens([(0, 0), (0, 2), (2, 2), (2, 3)], "a\nb", 0)
    assert (found.start, found.end) == (1, 4)
    assert found.lines.first.tolist() == [0, 1, 1]


def test_offsets_that_miss_the_text_are_refused():
    with pytest.raises(ValueError, match="no token covers characters 5 to 6"):
        output_tokens([(0, 5)], "x", 5)


@given(st.lists(TEXTS.filter(bool), min_size=1, max_size=12), TEXTS, TEXTS)
def test_every_line_has_a_token_and_tokens_cover_the_lines_in_order(tokens, before, after):
    found = tokens_in(tokens, before, after)
    text = "".join(tokens)
    assert found.end - found.start == len(tokens)
    assert found.lines.n_lines == len(split_lines(text)) == count_lines(text)
    assert (found.lines.tokens_per_line >= 1).all()
    assert (np.diff(found.lines.first) >= 0).all()
    assert (found.lines.last >= found.lines.first).all()


@given(TEXTS)
def test_lines_joined_are_the_text(text):
    assert "".join(split_lines(text)) == text
    assert len(split_lines(text)) == count_lines(text)


# --- the vote ------------------------------------------------------------------------------------
def one_line_each(tokens_per_line: list[int]) -> TokenLines:
    places = np.repeat(np.arange(len(tokens_per_line)), tokens_per_line)
    return TokenLines(first=places, last=places, n_lines=len(tokens_per_line))


def test_a_line_stays_with_more_than_half_of_its_tokens():
    kept = np.array([1, 0, 1, 1, 0, 0, 0, 1], dtype=bool)
    assert kept_by_vote(kept, one_line_each([2, 3, 3])).tolist() == [False, True, False]


def test_a_line_that_no_token_votes_on_stays():
    assert kept_by_vote(np.array([False]), one_line_each([1, 0])).tolist() == [False, True]


def test_a_score_at_the_threshold_keeps_and_so_does_a_missing_one():
    scores = np.array([0.5, 0.49, np.nan])
    kept = kept_lines(scores, one_line_each([1, 1, 1]), fill_gaps=False)
    assert kept.tolist() == [True, False, True]


def test_a_single_line_between_kept_ones_is_kept_unless_told_otherwise():
    lines = one_line_each([1] * 6)
    scores = np.array([0.9, 0.1, 0.9, 0.1, 0.1, 0.9])
    assert kept_lines(scores, lines).tolist() == [True, True, True, False, False, True]
    assert kept_lines(scores, lines, fill_gaps=False).tolist() == [
        *(True, False, True, False, False, True)
    ]


@given(st.lists(st.booleans(), max_size=20))
def test_filling_gaps_adds_lines_once_and_never_at_the_ends(kept):
    before = np.array(kept, dtype=bool)
    after = gaps_filled(before)
    assert (after | ~before).all()
    assert after[:1].tolist() == kept[:1]
    assert after[-1:].tolist() == kept[-1:]
    for i in range(1, len(kept) - 1):
        assert after[i] == (kept[i] or (kept[i - 1] and kept[i + 1]))


def test_scores_of_another_output_are_refused():
    with pytest.raises(ValueError, match="2 scores for 3 tokens"):
        kept_lines(np.zeros(2), one_line_each([3]))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=12))
def test_sums_over_lines_equal_those_of_a_plain_loop(spans):
    first = np.array([a for a, _ in spans])
    last = np.minimum(first + np.array([b for _, b in spans]), 9)
    lines = TokenLines(first=first, last=last, n_lines=10)
    values = np.arange(1, len(spans) + 1)
    expected = [
        sum(v for v, a, b in zip(values, first, last, strict=True) if a <= line <= b)
        for line in range(10)
    ]
    assert lines.per_line(values).tolist() == expected
    kept = np.arange(10) % 3 == 0
    assert lines.on_tokens(kept).tolist() == [
        any(kept[a : b + 1]) for a, b in zip(first, last, strict=True)
    ]


# --- what is shown -------------------------------------------------------------------------------
def test_removed_lines_become_one_line_that_counts_them():
    text = "a\r\nb\nc\nd\ne"
    shown = kept_text(text, [True, False, False, True, False])
    assert shown == "a\r\n(filtered 2 lines)\nd\n(filtered 1 lines)"


def test_a_text_whose_lines_all_stay_is_the_text():
    assert kept_text("a\n\nb\n", [True, True, True]) == "a\n\nb\n"


def test_decisions_for_another_text_are_refused():
    with pytest.raises(ValueError, match="1 decisions for 2 lines"):
        kept_text("a\nb", [True])


@given(TEXTS, st.data())
def test_kept_lines_are_shown_in_order_and_removed_ones_are_counted(text, data):
    lines = split_lines(text)
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    shown = split_lines(kept_text(text, kept, marker="#{n}"))
    counted = sum(int(line[1:]) for line in shown if line.startswith("#"))
    assert counted == kept.count(False)
    assert [s for s in shown if not s.startswith("#")] == [
        line for line, stays in zip(lines, kept, strict=True) if stays
    ]


# --- length buckets ------------------------------------------------------------------------------
def test_an_edge_belongs_to_the_lower_of_its_two_buckets():
    """The published heads count the edges below a length."""
    for n_lines in (0, 1, 2, 3, 5, 6, 10, 11, 20, 50, 51, 100, 101, 200, 201, 10_000):
        assert length_bucket(n_lines) == sum(edge < n_lines for edge in EDGES)
    assert length_bucket(201) == N_BUCKETS - 1 == len(EDGES)
    assert [bucket_name(b) for b in (0, 1, 7)] == ["0-2", "3-5", "201+"]
