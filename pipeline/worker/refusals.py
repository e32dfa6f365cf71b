"""A breaker: when the server refuses every run for the form of its requests, the worker stops.

Such a refusal (an unknown field, a key that expired, a renamed model) ends every run in the
same way, and 18,000 runs would be tried three times each. So what was refused is held back, neither
on record nor counted as an attempt, until another run shows that the server takes such requests, or
until so many were refused in a row that nothing else is to be expected.

Kinds of calls are counted apart: a cleanup turn may be refused where steps are not.
"""

import threading
from collections import defaultdict

from pipeline.plural import plural
from pipeline.records.run_record import RunRecord
from pipeline.serving.client import RequestRefusedError
from pipeline.serving.finding import ServerUnfitError
from pipeline.views.policy import CallKind


class RefusedInARowError(ServerUnfitError):
    """So many runs in a row were refused that it is the configuration's fault."""


class Refusals:
    """The runs that were refused since the last one that was not. May be shared by threads."""

    def __init__(self, limit: int) -> None:
        """Stop at the `limit`-th refusal in a row of the same kind of call."""
        self._limit = limit
        self._held: dict[str, list[RunRecord]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, record: RunRecord) -> list[RunRecord]:
        """Return what is to be journaled now that `record` has come in; it may be held back.

        Raises:
            RefusedInARowError: with this one the limit is reached. What was held back is dropped:
                it counts as never tried.
        """
        answered = {call.kind for call in record.calls if call.answered}
        refused = _refused_kind(record)
        with self._lock:
            released = [r for kind in answered for r in self._held.pop(kind, [])]
            if refused is None or refused in answered:
                return [*released, record]
            held = self._held[refused]
            held.append(record)
            if len(held) < self._limit:
                return released
            self._held.clear()
        why = (record.failure or "").strip().rpartition("\n")[2]
        raise RefusedInARowError(
            f"the server refused {plural(self._limit, 'run')} in a row at their first {refused} "
            "call, so no "
            f"more are started and none of them counts as tried: {why}"
        )

    def rest(self) -> list[RunRecord]:
        """Return what is still held back when the worker ends for another reason."""
        with self._lock:
            held = [record for records in self._held.values() for record in records]
            self._held.clear()
        return held


def _refused_kind(record: RunRecord) -> str | None:
    """Return the kind of the call whose refusal ended a run, None where nothing was refused."""
    if record.exit_status != RequestRefusedError.__name__:
        return None
    return record.calls[-1].kind if record.calls else CallKind.STEP.value
