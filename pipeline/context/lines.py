"""The distinct lines of a text, as they are compared when asking whether it came back."""

import re
from functools import lru_cache

_NUMBER = re.compile(r"^\s*(?:[\w./+@-]+?[:-])?\d+[:\t-]")
"""Line numbers as `cat -n`, `nl` and `grep -n` print them, with the path where there is one."""


@lru_cache(maxsize=2048)
def distinct_lines(text: str) -> frozenset[str]:
    """Return the lines of `text` without line numbers, trailing space and blank lines."""
    stripped = (_NUMBER.sub("", line).rstrip() for line in text.splitlines())
    return frozenset(line for line in stripped if line)


def share_seen(later: str, earlier: str) -> float:
    """Return the share of a later text's distinct lines that an earlier text holds; 0 if none."""
    lines = distinct_lines(later)
    return len(lines & distinct_lines(earlier)) / len(lines) if lines else 0.0
