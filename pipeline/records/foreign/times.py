"""Times in other people's files: any usual form in, seconds since 1970 out.

A number is seconds, or milli-, micro- or nanoseconds, told apart by its size. A text is such a
number, or ISO 8601 with or without a zone; without one it is taken as UTC. Anything else is None.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Message

_SECONDS_BELOW = 1e11
"""Seconds reach this in the year 5138, milliseconds in 1973."""
_NANOSECONDS_BELOW = _SECONDS_BELOW * 1e9
_CLOCKS_DIFFER_S = 60.0
"""So far may a time go back: two clocks, or a rounding to seconds."""
_LONGEST_S = 30 * 86_400.0


def unix_seconds(value: Any) -> float | None:
    """Return a time as seconds since 1970, None where it is no time."""
    if isinstance(value, str):
        return _of_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _NANOSECONDS_BELOW:
        return None
    seconds = float(value)
    while seconds >= _SECONDS_BELOW:
        seconds /= 1000.0
    return seconds


def duration(times: Sequence[float]) -> tuple[float | None, str | None]:
    """Return how long a run took, and why that is unknown where its times are impossible.

    Args:
        times: in the order in which the file has them.
    """
    if not times:
        return None, None
    back = max((a - b for a, b in pairwise(times)), default=0.0)
    if back > _CLOCKS_DIFFER_S:
        return None, f"its times run backwards by {back:.0f} s: how long it took is unknown"
    took = max(times) - min(times)
    if took > _LONGEST_S:
        days = took / 86_400
        return None, f"its times span {days:.0f} days: how long it took is unknown"
    return took, None


def with_waits(messages: Sequence[Message], calls: Sequence[CallRecord]) -> list[Message]:
    """Return the messages with `waited_s` where only the calls have times.

    The last message before a call then waited from the call before to this one, which is the time
    that a cache must hold the prefix for. Clocks that run backwards say nothing.
    """
    found = list(messages)
    for before, call in pairwise(calls):
        last = call.message_count - 1
        news = found[before.message_count + 1 : call.message_count]
        if not news or any(m.waited_s is not None for m in news):
            continue
        if before.started_at is None or call.started_at is None:
            continue
        gap = call.started_at - before.started_at
        if gap >= 0:
            found[last] = replace(found[last], waited_s=round(gap, 3))
    return found


def _of_text(text: str) -> float | None:
    try:
        return unix_seconds(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
