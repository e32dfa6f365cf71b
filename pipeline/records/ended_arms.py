"""Arms that were ended before all their planned runs were made, as a planned look allows.

Owns what the small files say that end them. The plan keeps its runs: whether an arm may end is for
the analysis to judge, from the looks.
"""

import json

from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan


def ended_arm_note(arm: str, *, at: str) -> bytes:
    """Return the content of an arm's file: it was ended at that time (ISO 8601)."""
    return json.dumps({"arm": arm, "ended_at": at}).encode()


def ended_arms(layout: Layout) -> dict[str, str]:
    """Return the arms that were ended, each with the time."""
    files = sorted(layout.ended_arms.glob("*.json"))
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return {note["arm"]: note["ended_at"] for note in notes}


def ended_runs(layout: Layout) -> frozenset[str]:
    """Return the planned runs of the arms that were ended, by id."""
    arms = ended_arms(layout)
    if not arms:
        return frozenset()
    return frozenset(run.run_id for run in read_plan(layout.plan) if run.arm in arms)
