"""Comparable lines: the rule, and the batch form against the rule carried out text by text."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analysis.behaviour.lines import distinct_lines as of_batch
from pipeline.shell.lines import distinct_lines, output_lines, share_seen


def test_numbers_go_only_where_the_command_numbers_lines():
    """`1: a` and `2: a` of a table were once the same line."""
    table = "1: a\n2: a\n3-a\n2024-01-01 b"
    assert output_lines("cat t.txt", table) == set(table.split("\n"))
    assert output_lines("grep -n a t.txt", "7:a\n9-a\nsrc/t.txt:12:b") == {"a", "b"}
    assert output_lines("cat -n t.txt", "     1\ta\n     2\t    b  \n") == {"a", "    b"}


def test_indentation_counts_and_space_at_the_end_does_not():
    assert distinct_lines("  a  \n a\n\n   \n") == {"  a", " a"}


def test_the_share_of_nothing_is_none():
    assert share_seen(frozenset(), frozenset("a")) == 0.0
    assert share_seen(frozenset("ab"), frozenset("a")) == 0.5


line = st.sampled_from(
    ["a", " a", "a ", "1:a", "a.py:1:a", "2-a", "  3\ta", "", "  ", "a\t", "10:30: x"]
)


@given(st.lists(st.tuples(st.lists(line, max_size=6).map("\n".join), st.booleans()), max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_batch_has_the_lines_that_each_text_has(texts: list[tuple[str, bool]]):
    batch = of_batch(
        pa.array([text for text, _ in texts], pa.string()), np.array([n for _, n in texts], bool)
    )
    sets = [distinct_lines(text, numbered=numbered) for text, numbered in texts]
    assert batch.counts.tolist() == [len(lines) for lines in sets]
    for i, mine in enumerate(sets):
        for j, other in enumerate(sets):
            shared = np.intersect1d(batch.line[batch.output == i], batch.line[batch.output == j])
            assert len(shared) == len(mine & other)
