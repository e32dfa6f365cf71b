"""Recalls: a pruned output shown again by the tool `recall`, a re-fetch of its own kind.

Recalls stand apart from re-fetches and regret, which are about commands: a recall costs no command
and shows exactly the source. A call that names no output, or one that was still shown, is none.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from pipeline.analysis.arrays import FloatArray, IntArray

Recalls = Mapping[str, Sequence[tuple[int, int]]]
"""Run to (output number from 1, index of the issuing call)."""

_RECALLS = """
SELECT m.run_id, m.command, coalesce(s.call_index, 0) FROM messages m
JOIN done d USING (run_id)
LEFT JOIN step_calls s ON s.run_id = m.run_id AND s.step_index = m.step_index
WHERE m.tool = 'recall' ORDER BY m.run_id, m.message_index
"""


def recalls_asked(connection: duckdb.DuckDBPyConnection) -> Recalls:
    """Return every readable call of `recall`; needs the temporary table `step_calls`."""
    asked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run_id, command, call in connection.execute(_RECALLS).fetchall():
        number = recalled_number(command or "")
        if number is not None:
            asked[run_id].append((number, call))
    return asked


def recalled_number(command: str) -> int | None:
    """Return the output that a call names, in JSON or as a line; None if it names none."""
    line = re.fullmatch(r"\s*recall[\s(\[]*(\d{1,9})[)\]\s]*", command)
    if line:
        return int(line[1])
    try:
        arguments = json.loads(command)
        return int(arguments["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def recalls_by_run(
    asked: Recalls, run_ids: Sequence[str], *, first: IntArray, pruned_at_call: IntArray
) -> FloatArray:
    """Return how many pruned outputs each run recalled.

    Args:
        asked: from `recalls_asked`.
        run_ids: the runs of a batch.
        first: where each run's outputs begin, and at the end how many there are.
        pruned_at_call: of every output.
    """
    counts = np.zeros(len(run_ids))
    for place, run_id in enumerate(run_ids):
        n_outputs = int(first[place + 1] - first[place])
        for number, call in asked.get(run_id, ()):
            if 1 <= number <= n_outputs:
                counts[place] += pruned_at_call[first[place] + number - 1] <= call
    return counts
