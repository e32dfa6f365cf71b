"""The lines of an output as they are compared when asking whether a text came back.

See docs/methods.md, Re-fetch.

Trailing space and blank lines go, and so do numbers before lines (`cat -n`, `nl`, `grep -n`, with
the path where there is one), but only where the command numbers lines: the first column of a table
is text. One rule, for a text at hand and for a batch of outputs in Arrow; a sweep has some hundred
million lines.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pipeline.shell.facts import facts_of

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERING = r"^(?:(?:[\w./+@-]+[:-])?\d+[:-]|\s*\d+\t)"
"""`path:12:`, `12:`, grep's context form `12-`, and `   12<tab>`."""

_NUMBER = re.compile(_NUMBERING)
_SPACE = " \t\r\v\f"


@lru_cache(maxsize=2048)
def distinct_lines(text: str, *, numbered: bool = False) -> frozenset[str]:
    """Return the comparable lines of `text`.

    Args:
        text: an output, or what an assistant wrote.
        numbered: whether the lines may have numbers before them: `facts_of(command).numbered`.
    """
    bare = (_NUMBER.sub("", line) if numbered else line for line in text.split("\n"))
    return frozenset(line for line in (b.rstrip(_SPACE) for b in bare) if line)


def output_lines(command: str | None, output: str) -> frozenset[str]:
    """Return the comparable lines of what a command printed."""
    return distinct_lines(output, numbered=facts_of(command or "").numbered)


def share_seen(later: frozenset[str], earlier: frozenset[str]) -> float:
    """Return the share of a later text's distinct lines that an earlier one holds; 0 if none."""
    return len(later & earlier) / len(later) if later else 0.0


def comparable(lines: "pa.Array", *, numbered: bool) -> "pa.Array":
    """Return each line of a batch as it is compared; empty where it does not count."""
    # Policies need the lines of single texts only, and every command imports the policies.
    import pyarrow.compute as pc

    if numbered:
        lines = pc.replace_substring_regex(lines, _NUMBERING, "", max_replacements=1)
    return pc.utf8_rtrim(lines, _SPACE)
