"""Code that a page of docs/ tells its reader to write, taken from the page."""

import re
import textwrap
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def block(page: str, language: str, number: int = 0) -> str:
    """Return a block of a language in a page, the first if no other is asked for."""
    found = re.findall(
        rf"^ *```{language}\n(.*?)^ *```",
        (DOCS / page).read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    assert len(found) > number, f"{page} has {len(found)} blocks of {language}"
    return textwrap.dedent(found[number])


def names_in(page: str) -> dict[str, Any]:
    """Return what the page's first Python block defines, run as a module of its own."""
    names: dict[str, Any] = {"__name__": page}
    exec(compile(block(page, "python"), page, "exec", dont_inherit=True), names)
    return names
