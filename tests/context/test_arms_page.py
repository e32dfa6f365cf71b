"""docs/arms.md says what the arms do."""

from itertools import takewhile
from pathlib import Path

import pytest

from pipeline.replaying.arms_page import arms_page
from pipeline.serving.tokens import token_counter
from tests.context.arms import CONF, arm, arm_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arms.md"


def current_page() -> str:
    arms = {name: arm(name) for name in arm_names()}
    return arms_page(arms, {name: note(name) for name in arms}, token_counter("chars/3.6"))


def note(name: str) -> str:
    """The comment at the top of an arm's file."""
    lines = (CONF / "arm" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.lstrip("# ") for line in takewhile(lambda t: t.startswith("#"), lines))


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == current_page(), (
        "write docs/arms.md again: python -m tests.context.test_arms_page"
    )


def test_every_arm_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in arm_names():
        assert f"## `{name}`" in text
        assert text.count(f"| [`{name}`](#{name}) | ") == 1


@pytest.mark.parametrize("name", arm_names())
def test_the_first_sentence_of_an_arms_file_is_one_line_of_a_table(name: str) -> None:
    """It is read alone, so it names the arm that it varies."""
    sentence = note(name).partition(". ")[0]
    assert sentence
    assert not sentence.startswith(("The same with", "The same,"))
    assert len(sentence) < 170


if __name__ == "__main__":
    PAGE.write_text(current_page(), encoding="utf-8")
