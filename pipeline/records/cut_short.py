"""Runs that their job ended before they did, and how long they had had by then.

One file a worker attempt, written when it gives runs up at its job's end. Without it a run that is
longer than any job would be started again by every job, in silence.
"""

import contextlib
import json
from collections.abc import Mapping

from pipeline.host.files import read_json, replace_bytes
from pipeline.records.layout import Layout


def note_cut_short(layout: Layout, worker: str, had_s: Mapping[str, float]) -> None:
    """Record the runs that a worker gives up, each with the seconds that it has had."""
    with contextlib.suppress(OSError):
        layout.cut_short.mkdir(parents=True, exist_ok=True)
        path = layout.cut_short_file(worker)
        replace_bytes(path, json.dumps({k: round(v, 1) for k, v in had_s.items()}).encode())


def cut_short(layout: Layout) -> dict[str, float]:
    """Return the longest time that each run has had in vain; finished runs may be among them."""
    longest: dict[str, float] = {}
    for path in sorted(layout.cut_short.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for run_id, had_s in read_json(path).items():
                longest[run_id] = max(longest.get(run_id, 0.0), float(had_s))
    return longest
