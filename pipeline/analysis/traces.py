"""The pair of runs that stands for a group in the context figure, and their prompts.

The pair is chosen by a rule, not by eye: the task whose ratio of input tokens is nearest to the
median one, among those where the arm acted.
"""

from dataclasses import dataclass
from math import nan

import duckdb
import numpy as np

from pipeline.analysis.figures.context import ContextTrace, Drop
from pipeline.analysis.outcomes import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPair:
    """One task on one seed in two arms."""

    instance_id: str
    seed: int
    traces: tuple[ContextTrace, ...]


def typical_pair(
    connection: duckdb.DuckDBPyConnection, group: Group, *, arm: str, reference: str
) -> TracedPair | None:
    """Return the pair with the most ordinary ratio of input tokens; None without any pair."""
    treatment, control = group.arms[arm], group.arms[reference]
    shared = [s for s in treatment.seeds if s in control.seeds]
    ratios, places = [], []
    for seed in shared:
        t, c = treatment.seeds.index(seed), control.seeds.index(seed)
        with np.errstate(divide="ignore", invalid="ignore"):
            column = treatment.metrics["input_tokens"][:, t] / control.metrics["input_tokens"][:, c]
        acted = treatment.metrics["n_pruned"][:, t] > 0
        for i in np.flatnonzero(np.isfinite(column)).tolist():
            ratios.append((not acted[i], float(column[i])))
            places.append((i, seed, t, c))
    if not ratios:
        return None
    idle = min(r[0] for r in ratios)
    middle = float(np.median([value for unacted, value in ratios if unacted == idle]))
    _, best = min(
        (abs(value - middle), number)
        for number, (unacted, value) in enumerate(ratios)
        if unacted == idle
    )
    i, seed, t, c = places[best]
    return TracedPair(
        instance_id=group.instance_ids[i],
        seed=seed,
        traces=(
            trace_of(connection, str(control.run_id[i, c]), arm=reference),
            trace_of(connection, str(treatment.run_id[i, t]), arm=arm),
        ),
    )


def trace_of(connection: duckdb.DuckDBPyConnection, run_id: str, *, arm: str) -> ContextTrace:
    """Return one run's prompts, its plan steps and what was dropped when."""
    calls = connection.execute(
        "SELECT call_index, step_index, kind, coalesce(prompt_tokens, 0) FROM calls "
        "WHERE run_id = ? AND prompt_tokens IS NOT NULL ORDER BY call_index",
        [run_id],
    ).fetchall()
    place = {index: i for i, (index, *_) in enumerate(calls)}
    step_place = {step: i for i, (_, step, kind, _) in enumerate(calls) if kind == "step"}
    completed = connection.execute(
        "SELECT DISTINCT step_index FROM plan_events WHERE run_id = ? AND action = 'complete'",
        [run_id],
    ).fetchall()
    drops = connection.execute(
        "SELECT pruned_at_call, count(*), sum(n_tokens)::DOUBLE FROM messages "
        "WHERE run_id = ? AND pruned_at_call IS NOT NULL GROUP BY 1 ORDER BY 1",
        [run_id],
    ).fetchall()
    return ContextTrace(
        arm=arm,
        prompt_tokens=np.array([float(tokens) for *_, tokens in calls]),
        is_cleanup=[kind == "cleanup" for _, _, kind, _ in calls],
        plan_step_calls=sorted(step_place[s] for (s,) in completed if s in step_place),
        drops=[
            Drop(call=place[call], n_outputs=n, n_tokens=nan if tokens is None else tokens)
            for call, n, tokens in drops
            if call in place
        ],
    )
