"""Which text of a changed message was in an earlier version of it: what splicing could reuse.

An engine that keeps the keys of surviving text moves them to their new places, so what counts is
which runs of a message's text stand, in order, in a version of the same message that was sent
before (docs/methods.md, Cache accounting). Lines that occur once on either side anchor the two
versions; between anchors equal lines are paired in order, and what is left is compared by its ends
and by words.
Close to linear in the two texts. It finds everything that survives when text is cut out, and
at least the common head and tail for any change.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

_UNIT = re.compile(r"\s*\S+|\s+$")

Run = tuple[int, int]
"""Start and end of a stretch of the new text, in characters."""


def surviving_runs(old: str, new: str) -> list[Run]:
    """Return the stretches of `new` that stand in `old` in the same order, neighbours as one."""
    head, tail = _common_ends(old, new)
    runs = [(0, head)] if head else []
    middle_old = old[head : len(old) - tail]
    middle_new = new[head : len(new) - tail]
    if middle_old and middle_new:
        inner = _matched_lines(middle_old, middle_new)
        runs += [(head + start, head + end) for start, end in inner]
    if tail:
        runs.append((len(new) - tail, len(new)))
    return _joined(runs)


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the common head, and of the common tail of the rest, in whole words."""
    limit = min(len(old), len(new))
    head = _whole_words(old, new, _common_head(old, new, limit))
    backwards = old[::-1], new[::-1]
    tail = _whole_words(*backwards, _common_head(*backwards, limit - head))
    return head, tail


def _whole_words(old: str, new: str, length: int) -> int:
    """Return how much of a common head ends where a word does, in both texts."""
    if all(length == len(text) or text[length].isspace() for text in (old, new)):
        return length
    while length and not new[length - 1].isspace():
        length -= 1
    return length


def _common_head(a: str, b: str, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _matched_lines(old: str, new: str) -> list[Run]:
    olds, news = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = _starts(news)
    old_starts = _starts(olds)
    runs: list[Run] = []
    pairs = [*_paired(olds, news), (len(olds), len(news))]
    from_old = from_new = 0
    for at_old, at_new in pairs:
        gap_old = old[old_starts[from_old] : old_starts[at_old]]
        gap_new = new[starts[from_new] : starts[at_new]]
        if gap_old and gap_new:
            inner = _matched_words(gap_old, gap_new)
            runs += [(starts[from_new] + s, starts[from_new] + e) for s, e in inner]
        if at_new < len(news):
            runs.append((starts[at_new], starts[at_new + 1]))
        from_old, from_new = at_old + 1, at_new + 1
    return runs


def _paired(olds: Sequence[str], news: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of equal lines (old, new), increasing in both."""
    anchors = _anchors(olds, news)
    found: list[tuple[int, int]] = []
    from_old = from_new = 0
    for at_old, at_new in [*anchors, (len(olds), len(news))]:
        found += _in_order(olds, news, range(from_old, at_old), range(from_new, at_new))
        if at_old < len(olds):
            found.append((at_old, at_new))
        from_old, from_new = at_old + 1, at_new + 1
    return found


def _anchors(olds: Sequence[str], news: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest increasing chain of lines that occur once on each side."""
    once_old, once_new = _once(olds), _once(news)
    places = [(once_old[line], at) for line, at in once_new.items() if line in once_old]
    places.sort(key=lambda place: place[1])
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (at_old, _) in enumerate(places):
        length = bisect_left(tails, at_old)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(at_old)
            ends.append(number)
        else:
            tails[length], ends[length] = at_old, number
    chain = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(places[number])
        number = before[number]
    return chain[::-1]


def _once(lines: Sequence[str]) -> dict[str, int]:
    seen: dict[str, int] = {}
    for at, line in enumerate(lines):
        seen[line] = -1 if line in seen else at
    return {line: at for line, at in seen.items() if at >= 0}


def _in_order(
    olds: Sequence[str], news: Sequence[str], old: range, new: range
) -> list[tuple[int, int]]:
    """Return pairs of equal items, each new one with the earliest old one that is still free."""
    places: dict[str, list[int]] = {}
    for at in old:
        places.setdefault(olds[at], []).append(at)
    found = []
    free = old.start
    for at in new:
        candidates = places.get(news[at], ())
        place = bisect_left(candidates, free)
        if place < len(candidates):
            found.append((candidates[place], at))
            free = candidates[place] + 1
    return found


def _matched_words(old: str, new: str) -> list[Run]:
    head, tail = _common_ends(old, new)
    runs = [(0, head)] if head else []
    olds = _UNIT.findall(old[head : len(old) - tail])
    news = _UNIT.findall(new[head : len(new) - tail])
    starts = _starts(news)
    pairs = _in_order(olds, news, range(len(olds)), range(len(news)))
    runs += [(head + starts[at], head + starts[at + 1]) for _, at in pairs]
    if tail:
        runs.append((len(new) - tail, len(new)))
    return runs


def _starts(parts: Sequence[str]) -> list[int]:
    places = [0]
    for part in parts:
        places.append(places[-1] + len(part))
    # A gap at the end starts where the text ends.
    return [*places, places[-1]]


def _joined(runs: Sequence[Run]) -> list[Run]:
    joined: list[Run] = []
    for start, end in runs:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
