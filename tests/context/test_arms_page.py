"""docs/arms.md says what the arms do."""

from itertools import takewhile
from pathlib import Path

from pipeline.replaying.gallery import arms_page
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


if __name__ == "__main__":
    PAGE.write_text(current_page(), encoding="utf-8")
