"""When a read brings back what an earlier output showed: one rule for policies and the analysis.

Both judge raw outputs, never what a template put around them: the wrapper that every output has is
no quotation, and a command that printed nothing fetched nothing (docs/methods.md, Re-fetch).
"""

from pipeline.shell.facts import facts_of
from pipeline.shell.lines import output_lines, share_seen

MIN_SHARE = 0.8
"""Of the later read's distinct lines, those that the earlier output must have shown."""
MIN_LINES = 3
"""A read with fewer distinct lines is none."""


def brings_back(command: str | None, output: str, shown: frozenset[str]) -> bool:
    """Return whether a command fetched again what an earlier one had shown.

    Args:
        command: the later one.
        output: what it printed.
        shown: the comparable lines of the earlier output.
    """
    if not facts_of(command or "").shows_text:
        return False
    lines = output_lines(command, output)
    return len(lines) >= MIN_LINES and share_seen(lines, shown) >= MIN_SHARE
