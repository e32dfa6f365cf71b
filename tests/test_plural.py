"""A number and its noun agree."""

import pytest

from pipeline.plural import plural


@pytest.mark.parametrize(
    ("n", "said"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1200, "1,200 runs")]
)
def test_one_is_singular_and_nothing_else(n: int, said: str):
    assert plural(n, "run") == said


def test_the_verb_agrees_where_it_is_given():
    said = [plural(n, "repository has", "repositories have") for n in (1, 2)]
    assert said == ["1 repository has", "2 repositories have"]
