"""A long stream keeps its ends."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.host.output import HeadTail


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 60))
def test_the_ends_are_kept_and_the_rest_is_counted(chunks: list[bytes], limit: int) -> None:
    kept = HeadTail(limit)
    for chunk in chunks:
        kept.append(chunk)
    stream = b"".join(chunks)
    if len(stream) <= limit:
        assert kept.joined() == stream
    head = stream[: limit // 2]
    tail = stream[len(head) :][-(limit - limit // 2) :] if limit else b""
    assert (kept.head, kept.tail) == (head, tail)
    assert kept.dropped_bytes == len(stream) - len(head) - len(tail)
