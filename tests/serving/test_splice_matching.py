"""Which stretches of a prompt can be moved."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.serving.splice.matching import (
    MIN_PIECE_TOKENS,
    Piece,
    holes,
    planned_pieces,
    surviving_pieces,
)

TEXT = list(range(1000, 1600))
NOTE = [7, 8, 9]
tokens = st.lists(st.integers(0, 40), max_size=120)


def test_text_around_an_omitted_output_survives_at_its_new_place() -> None:
    edited = TEXT[:100] + NOTE + TEXT[300:]
    assert surviving_pieces(TEXT, edited) == [Piece(0, 0, 100), Piece(103, 300, 300)]


def test_several_edits_leave_several_pieces_in_order() -> None:
    edited = TEXT[:50] + NOTE + TEXT[100:200] + NOTE + TEXT[400:] + [1, 2]
    assert surviving_pieces(TEXT, edited) == [
        Piece(0, 0, 50), Piece(53, 100, 100), Piece(156, 400, 200),
    ]  # fmt: skip
    assert holes(surviving_pieces(TEXT, edited)) == [53, 156]


def test_a_plain_deletion_leaves_no_hole() -> None:
    assert holes(surviving_pieces(TEXT, TEXT[:100] + TEXT[200:])) == []


def test_a_new_text_has_an_empty_prefix_and_nothing_else() -> None:
    assert surviving_pieces([], TEXT) == [Piece(0, 0, 0)]
    assert surviving_pieces(TEXT, [1, *TEXT[:3]]) == [Piece(0, 0, 0)]


def test_text_that_repeats_itself_is_no_anchor() -> None:
    line = list(range(20))
    old = [900, *line, 901, *line, 902]
    assert surviving_pieces(old, [*line, 5]) == [Piece(0, 0, 0)]


def test_repair_computes_the_first_tokens_of_every_moved_piece_and_drops_short_ones() -> None:
    short = MIN_PIECE_TOKENS + 10
    edited = TEXT[:50] + NOTE + TEXT[100 : 100 + short] + NOTE + TEXT[400:]
    assert planned_pieces(TEXT, edited, 16) == [
        Piece(0, 0, 50), Piece(53 + short + 3 + 16, 416, 184),
    ]  # fmt: skip


@given(tokens, tokens, st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=4))
def test_pieces_hold_equal_tokens_in_the_order_of_both(
    noise: list[int], tail: list[int], cuts: list[tuple[int, int]]
) -> None:
    old = TEXT[:300] + noise + TEXT[300:]
    new = list(old)
    for lo, hi in cuts:
        new[min(lo, hi) : max(lo, hi)] = NOTE
    new += tail
    pieces = surviving_pieces(old, new)
    at_new = at_old = 0
    for piece in pieces:
        assert piece.new >= at_new
        assert piece.old >= at_old
        at_new, at_old = piece.new + piece.n, piece.old + piece.n
        assert new[piece.new : at_new] == old[piece.old : at_old]
    assert pieces[0].new == 0
