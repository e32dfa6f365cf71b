"""The runs whose beginnings are shared: which run forks from which, and what it becomes then.

See docs/planning.md, Forked pairs.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pipeline.agent.rollout import RunOutcome
from pipeline.agent.shared_prefix import SharedPrefix
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock
from pipeline.records.plan import PlannedRun
from pipeline.records.rebuild import recorded_run
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.states import States


class ForkSources:
    """The finished runs that others of their block begin with. Any thread."""

    def __init__(self, layout: Layout, sources: Mapping[str, str]) -> None:
        """Remember which run begins with which; nothing is read yet."""
        self._layout, self._sources = layout, sources
        self._states = States(layout)
        self._lock = threading.Lock()

    def of(self, run_id: str) -> RunRecord | None:
        """Return the run that `run_id` is to begin with; None where it is to run fresh.

        Raises:
            LookupError: that run has no result.
        """
        source = self._sources.get(run_id)
        if source is None:
            return None
        with self._lock:
            self._states.refresh()
            state = self._states.state_of(source)
        if not state.has_result:
            raise LookupError(f"{source} has no result to begin with")
        return recorded_run(self._layout, state)


def fork_sources(lock: Lock, runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return, for each run that is to begin with another one, that run.

    It is the run of the arm that the sweep says, of the same model, agent, instance and seed.
    """
    if not lock.spec.fork:
        return {}

    def place(run: PlannedRun, arm: str) -> tuple[str, str, str, int, str]:
        return (run.model, run.agent, run.instance_id, run.seed, arm)

    at = {place(run, run.arm): run.run_id for run in runs}
    named = ((run, lock.spec.fork_source(run.arm)) for run in runs)
    found = {run.run_id: at.get(place(run, arm)) for run, arm in named if arm is not None}
    return {run_id: source for run_id, source in found.items() if source is not None}


def outcome_of(record: RunRecord) -> RunOutcome:
    """Return the outcome of a recorded run, for an arm that would never have changed it."""
    return RunOutcome(**{f.name: getattr(record, f.name) for f in fields(RunOutcome)})


_CACHE_FACTS = (
    *("cache_write_tokens", "lcp_tokens", "lcp_exact", "lcp_block_tokens", "lcp_state_tokens"),
    *("spliced_tokens", "new_tokens", "rebilled_tokens"),
)


def with_prefix(
    outcome: RunOutcome, facts: Mapping[str, Any], prefix: SharedPrefix
) -> tuple[RunOutcome, dict[str, Any]]:
    """Return what came of a run that began with another, and how it was made.

    An arm that asked something but never acted takes the other run's outcome. The time is what the
    run would have taken by itself; it ends when it did. A run that shared no call ran fresh.
    """
    record, at = prefix.record, prefix.forked_at_call
    if at == 0:
        return outcome, dict(facts)
    shared = record.calls[:at]
    if at is None:
        made = outcome_of(record)
        outcome = replace(
            outcome,
            patch=made.patch,
            limit_patch=made.limit_patch,
            answer=made.answer,
            wall_s=made.wall_s,
        )
    else:
        outcome = replace(outcome, finished_at=outcome.finished_at - prefix.skipped_s)
    facts = {**facts, "forked_from": record.run_id, "forked_at_call": len(shared)}
    return replace(outcome, calls=_with_shared_facts(outcome.calls, shared)), facts


def _with_shared_facts(
    calls: Sequence[CallRecord], shared: Sequence[CallRecord]
) -> tuple[CallRecord, ...]:
    """Return a forked run's calls with what only the shared ones' server knew of its cache.

    The first call after them met a cache without their prompts: what it found there is unknown.
    """
    known = [
        replace(call, **{name: getattr(from_, name) for name in _CACHE_FACTS})
        for call, from_ in zip(calls, shared, strict=False)
    ]
    own = [replace(c, cached_tokens=None) for c in calls[len(known) : len(known) + 1]]
    return (*known, *own, *calls[len(known) + 1 :])
