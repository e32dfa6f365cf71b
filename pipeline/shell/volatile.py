"""What of a command's output changes when the same command is run again in the same state.

Two outputs that differ in nothing else are of the same state. Each rule replaces what it finds by
its name; docs/planning.md lists them.
"""

import re

RULES: tuple[tuple[str, str], ...] = (
    ("date", r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z| ?[+-]\d\d:?\d\d)?\b"),
    (
        "date",
        r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
        r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
        r" +\d{1,2} +(?:\d\d:\d\d(?::\d\d)?(?: \d{4})?(?: [+-]\d{4})?|\d{4})(?!\d)",
    ),
    ("time", r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"),
    ("duration", r"\b\d+(?:\.\d+)? ?(?:s|ms|us|ns|sec|secs|seconds?|minutes?|m\d+(?:\.\d+)?s)\b"),
    ("address", r"\b0x[0-9a-fA-F]{4,}\b"),
    ("uuid", r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    # Of a new commit, which may happen to hold digits alone; other such words are numbers.
    ("hash", r"(?<=[\w)]) [0-9a-f]{7,40}(?=\])"),
    ("hash", r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"),
    ("temporary", r"/tmp/(?:tmp|pip-|pytest-of-)[\w./-]*"),
    ("process", r"\b(?:pid|PID)[ =:]+\d+\b"),
)
"""Name and pattern, applied in this order."""

_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in RULES)


def stable(output: str) -> str:
    """Return an output with what changes from one execution to the next replaced by its name."""
    for name, pattern in _PATTERNS:
        output = pattern.sub(f"<{name}>", output)
    return output
