"""From scores to lines, for any scores."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.pruners.chunks import function_chunks
from pipeline.pruners.ranking import (
    best_within,
    covered,
    line_means,
    line_windows,
    overlapping,
    spans_of_lines,
)
from pipeline.views.kept_lines import TokenLines

values = st.lists(st.floats(-5, 5) | st.just(float("nan")), min_size=1, max_size=30)


@given(values, st.floats(0, 1), st.data())
def test_the_best_lines_stay_until_the_budget_is_reached(
    found: list[float], rate: float, data: st.DataObject
) -> None:
    costs = np.array(data.draw(st.lists(st.integers(1, 9), min_size=len(found))))[: len(found)]
    kept = best_within(np.array(found), costs, rate)
    known = ~np.isnan(found)
    assert not kept[~known].any(), "a line nobody judged is not among the best"
    if kept.any():
        worst = min(np.array(found)[kept])
        left = [v for v, stays in zip(found, kept, strict=True) if not stays and not np.isnan(v)]
        assert all(v <= worst for v in left)
    budget = rate * costs.sum()
    assert costs[kept].sum() <= budget + costs[kept].max(initial=0)
    assert kept.any() == (rate > 0 and bool(known.any()))


def test_ties_go_to_the_earlier_line() -> None:
    kept = best_within(np.array([1.0, 2.0, 2.0, 2.0]), np.array([1, 1, 1, 1]), 0.5)
    assert kept.tolist() == [False, True, True, False]


def test_a_line_is_worth_the_mean_of_its_tokens_and_one_across_a_newline_counts_on_both() -> None:
    lines = TokenLines(first=np.array([0, 0, 2]), last=np.array([0, 2, 2]), n_lines=4)
    means = line_means(np.array([1.0, 0.0, 0.5]), lines)
    assert means[:3].tolist() == [0.5, 0.0, 0.25]
    assert np.isnan(means[3])


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 9))
def test_pieces_are_all_tokens_in_order_none_too_long(steps: list[int], limit: int) -> None:
    first_lines = np.cumsum(np.array(steps, dtype=np.int64))
    spans = list(spans_of_lines(first_lines, limit))
    assert [i for start, end in spans for i in range(start, end)] == list(range(len(steps)))
    assert all(0 < end - start <= limit for start, end in spans)


def test_pieces_end_where_lines_do() -> None:
    first_lines = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    assert list(spans_of_lines(first_lines, 4)) == [(0, 3), (3, 5), (5, 9), (9, 12)]


@given(st.integers(0, 100), st.integers(2, 20), st.data())
def test_every_token_is_new_once_and_has_a_past(n: int, limit: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, limit - 1))
    pieces = list(overlapping(n, limit, overlap))
    assert [i for _, fresh, end in pieces for i in range(fresh, end)] == list(range(n))
    assert all(end - start <= limit for start, _, end in pieces)
    assert all(fresh - start == overlap for start, fresh, _ in pieces[1:] if fresh >= overlap)


@given(st.integers(1, 200), st.integers(1, 50), st.data())
def test_windows_cover_all_lines_and_share_what_they_should(
    n_lines: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    windows = line_windows(n_lines, size, overlap)
    assert covered(windows, n_lines).all()
    assert all(a[1] - b[0] == overlap for a, b in itertools.pairwise(windows))
    assert not covered(windows[:-1], n_lines).all(), "no window is there for nothing"


# --- chunks --------------------------------------------------------------------------------------
@given(
    st.lists(st.sampled_from(["def f():", "    x = 1", "", "  12\tclass A:", "@dec"])),
    st.integers(1, 9),
)
def test_chunks_are_all_lines_in_order_none_too_long(lines: list[str], limit: int) -> None:
    chunks = function_chunks(lines, limit)
    assert [i for start, end in chunks for i in range(start, end)] == list(range(len(lines)))
    assert all(0 < end - start <= limit for start, end in chunks)


@pytest.mark.parametrize(
    "head",
    [
        *("def f(a):", "    async def f(a):", "class A(B):", "   120\tdef f(a):", "12:def f(a):"),
        *(
            "export default function f() {",
            "pub fn main() {",
            "func (s *T) F() {",
            "impl A for B {",
        ),
    ],
)
def test_a_definition_begins_a_chunk(head: str) -> None:
    assert function_chunks(["x = 1", "y = 2", head, "    return"], 40) == [(0, 2), (2, 4)]


@pytest.mark.parametrize("line", ["default = 3", "definitely not", "classes: 4", "# def", "func"])
def test_words_that_only_look_like_one_do_not(line: str) -> None:
    assert function_chunks(["x = 1", line, "y = 2"], 40) == [(0, 3)]


def test_decorators_belong_to_what_they_decorate() -> None:
    lines = ["import a", "@one", "@two(3)", "def f():", "    pass"]
    assert function_chunks(lines, 40) == [(0, 1), (1, 5)]


def test_text_without_definitions_is_cut_at_blank_lines_and_at_the_limit() -> None:
    assert function_chunks(["a", "b", "", "", "c", "d", "e"], 2) == [(0, 2), (2, 4), (4, 6), (6, 7)]
