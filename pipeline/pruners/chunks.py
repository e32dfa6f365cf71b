"""Chunks of an output at function level: where a definition begins, a chunk does.

Pure. Line numbers that commands print in front (`cat -n`, `nl`, `grep -n`) are looked through. What
has no definitions is cut at blank lines, and whatever is too long, at the limit.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

_NUMBER = r"(?:\s*\d+[\t :|-])?"
_WORDS = (
    r"(?:(?:async|export|default|public|private|protected|static|final|abstract|pub|unsafe|inline)"
    r"\s+)*"
)
_DEFINITION = re.compile(
    rf"^{_NUMBER}\s*{_WORDS}"
    r"(?:def|class|function|func|fn|impl|struct|interface|trait|enum|module|namespace|sub)\b[ \w]"
)
_ATTACHED = re.compile(rf"^{_NUMBER}\s*(?:@|#\[)")
"""Decorators and attributes belong to what follows."""


def function_chunks(lines: Sequence[str], max_lines: int) -> list[tuple[int, int]]:
    """Return (first line, one past the last) of each chunk, in order; together they are all."""
    heads = [i for i, line in enumerate(lines) if _DEFINITION.match(line)]
    starts = [_with_decorators(lines, head) for head in heads]
    if not starts:
        starts = [i for i in range(1, len(lines)) if lines[i].strip() and not lines[i - 1].strip()]
    borders = sorted({0, *starts, len(lines)})
    chunks = itertools.pairwise(borders)
    return [piece for start, end in chunks for piece in _pieces(start, end, max_lines)]


def _with_decorators(lines: Sequence[str], head: int) -> int:
    while head > 0 and _ATTACHED.match(lines[head - 1]):
        head -= 1
    return head


def _pieces(start: int, end: int, max_lines: int) -> Iterator[tuple[int, int]]:
    for first in range(start, end, max_lines):
        yield first, min(first + max_lines, end)
