"""Behaviour by arm: what was read again, how much was pruned, and what should make one suspicious.

Means are over instances (seed means first). Re-fetches are normalised by the ratio of means to the
reference, never by per-instance ratios: many instances have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow.compute as pc

from pipeline.analysis.arrays import FloatArray, IntArray
from pipeline.analysis.behaviour.collect import Behaviour
from pipeline.analysis.behaviour.regret import Hazard
from pipeline.analysis.bootstrap import (
    Estimate,
    mean_differences,
    ratios_of_sums,
    seed_means,
)
from pipeline.analysis.contrasts import Draws
from pipeline.analysis.outcomes import ArmOutcomes, Group, shaped_by_arm
from pipeline.shell.kinds import Kind

RANDOM_REFERENCES = ("random_prune", "sham_cleanup")
"""Arms whose regret stands beside the others': chance, and asking without pruning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedSteps:
    """Steps a run beyond the reference's."""

    total: Estimate
    refetching: Estimate
    """Of them, steps that fetched something again."""
    other: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmBehaviour:
    """One arm's behaviour; counts are means a run unless said otherwise."""

    arm: str
    n_runs: int
    steps_mean: float
    steps_median: float
    commands: Mapping[str, float]
    """Kind to commands a run."""
    reads: float
    refetches: float
    refetch_rate: float
    """Re-fetches over reads, summed over runs."""
    refetch_ratio: Estimate | None
    """Re-fetches a run over the reference's; None for the reference."""
    source_pruned: float
    """Share of re-fetches whose source was no longer shown at all."""
    source_partly: float
    source_visible: float
    verifying: float
    """Share of re-fetches after a write to the same file."""
    recalls: float
    """Pruned outputs shown again by the tool `recall`; in no other count."""
    distance_median: float
    """Turns between a re-fetch and its source."""
    hazard: Hazard
    """One row an instance."""
    regret: Estimate
    """Hazard of pruned over kept outputs at the same ages."""
    added_steps: AddedSteps | None
    """None for the reference, and where nobody knows what was fetched again."""
    distances: FloatArray
    # --- dose ---
    plan_steps: float
    plan_steps_completed: float
    cleanups: float
    never_treated: float
    """Share of runs in which nothing was pruned."""
    pruned_tokens: float
    pruned_outputs: float
    # --- endings and suspicions, in runs ---
    capped: int
    context_limited: int
    loops: int
    empty_patches: int
    solved_without_read: int
    network: int
    """Runs that installed or downloaded something."""
    other_commits: int
    """Runs that looked at other branches, remotes or the reflog."""
    named_commits: int
    foreign_commits: int
    """Runs that showed a commit by a hash that nothing in the run had shown; see `foreign`."""
    template_dropped_tokens: float
    format_errors: float
    """Replies a run that could not be carried out."""
    calls_as_text: float
    """Of these, with a tool call in their text: the server did not read it."""


_PLANS = """
SELECT d.run_id, coalesce(max(e.plan_step), 0)::DOUBLE AS plan_steps,
  count(*) FILTER (e.action = 'complete')::DOUBLE AS plan_steps_completed, any_value(d.loop) AS loop
FROM done d LEFT JOIN plan_events e USING (run_id) GROUP BY d.run_id
"""


def behaviour_by_arm(
    connection: duckdb.DuckDBPyConnection,
    behaviour: Behaviour,
    group: Group,
    *,
    reference: str,
    draws: Draws,
) -> list[ArmBehaviour]:
    """Return the behaviour of every arm of `group`, the reference first."""
    counts = shaped_by_arm(group, behaviour.run_ids, behaviour.columns)
    plans = connection.execute(_PLANS).fetchnumpy()
    run_ids = [str(r) for r in plans.pop("run_id").tolist()]
    columns = {
        name: np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
        for name, values in plans.items()
    }
    doses = shaped_by_arm(group, run_ids, columns)
    distances = _distances(behaviour, group)
    order = [reference, *(a for a in group.arms if a != reference)]
    base = _mean_of(counts[reference], "n_refetches")
    found = []
    for name in order:
        ratio, added = None, None
        if name != reference:
            ratio = _ratio(_mean_of(counts[name], "n_refetches"), base, draws)
            added = _added_steps(
                (group.arms[reference], counts[reference]), (group.arms[name], counts[name]), draws
            )
        hazard = behaviour.hazard.by_group(
            _instance_of(behaviour, group.arms[name]), len(group.instance_ids)
        )
        found.append(
            _arm_behaviour(
                group.arms[name],
                {**counts[name], **doses[name]},
                ratio=ratio,
                added=added,
                hazard=hazard,
                regret=hazard.ratio(draws.of(len(group.instance_ids))),
                distances=distances[name],
            )
        )
    return found


def _instance_of(behaviour: Behaviour, arm: ArmOutcomes) -> IntArray:
    """Return the place of each run's instance in the arm; -1 for runs of other arms."""
    places = np.argwhere(arm.done)
    row_of = {str(arm.run_id[tuple(at)]): int(at[0]) for at in places}
    return np.array([row_of.get(name, -1) for name in behaviour.run_ids], dtype=np.int64)


def _added_steps(
    control: tuple[ArmOutcomes, Mapping[str, FloatArray]],
    treatment: tuple[ArmOutcomes, Mapping[str, FloatArray]],
    draws: Draws,
) -> AddedSteps | None:
    """Return how many steps a run has more than the reference's, and of which kind."""
    steps = [arm.mean_of("n_steps") for arm, _ in (control, treatment)]
    again = [_mean_of(columns, "n_refetch_steps") for _, columns in (control, treatment)]
    if not (len(again[0]) and len(again[1])):
        return None
    known = ~np.isnan([*steps, *again]).any(axis=0)
    counts = draws.of(int(known.sum()))
    kinds = (steps, again, [s - a for s, a in zip(steps, again, strict=True)])
    total, refetching, other = (
        mean_differences(old[known], new[known][:, None], counts)[0] for old, new in kinds
    )
    return AddedSteps(total=total, refetching=refetching, other=other)


def _arm_behaviour(
    arm: ArmOutcomes,
    columns: Mapping[str, FloatArray],
    *,
    ratio: Estimate | None,
    added: AddedSteps | None,
    hazard: Hazard,
    regret: Estimate,
    distances: FloatArray,
) -> ArmBehaviour:
    def mean(values: FloatArray) -> float:
        means = seed_means(values)
        known = means[~np.isnan(means)]
        return float(known.mean()) if len(known) else float("nan")

    def runs(flags: np.ndarray) -> int:
        return int((flags & arm.done).sum())

    def column(name: str) -> FloatArray:
        return columns.get(name, np.full(arm.done.shape, np.nan))

    refetches, reads = float(np.nansum(column("n_refetches"))), float(np.nansum(column("n_reads")))
    steps = seed_means(arm.metrics["n_steps"])
    steps = steps[~np.isnan(steps)]
    classes = arm.failure_class
    return ArmBehaviour(
        arm=arm.arm,
        n_runs=int(arm.done.sum()),
        steps_mean=mean(arm.metrics["n_steps"]),
        steps_median=float(np.median(steps)) if len(steps) else float("nan"),
        commands={kind.value: mean(column(f"n_{kind.value}")) for kind in Kind},
        reads=mean(column("n_reads")),
        refetches=mean(column("n_refetches")),
        refetch_rate=_divided(refetches, reads),
        refetch_ratio=ratio,
        source_pruned=_divided(float(np.nansum(column("n_refetches_pruned"))), refetches),
        source_partly=_divided(float(np.nansum(column("n_refetches_partly"))), refetches),
        source_visible=_divided(float(np.nansum(column("n_refetches_visible"))), refetches),
        verifying=_divided(float(np.nansum(column("n_refetches_verifying"))), refetches),
        recalls=mean(column("n_recalls")),
        distance_median=float(np.median(distances)) if len(distances) else float("nan"),
        hazard=hazard,
        regret=regret,
        added_steps=added,
        distances=distances,
        plan_steps=mean(column("plan_steps")),
        plan_steps_completed=mean(column("plan_steps_completed")),
        cleanups=mean(arm.metrics["n_cleanups"]),
        never_treated=_divided(float(runs(arm.metrics["n_pruned"] == 0)), float(arm.done.sum())),
        pruned_tokens=mean(arm.metrics["pruned_tokens"]),
        pruned_outputs=mean(arm.metrics["n_pruned"]),
        capped=sum(runs(classes == f"limit_{what}") for what in ("steps", "time", "cost")),
        context_limited=runs(classes == "limit_context"),
        loops=runs(column("loop") == 1),
        empty_patches=runs(classes == "submitted_empty"),
        solved_without_read=runs((arm.resolved == 1) & (column("n_read") == 0)),
        network=runs(column("n_network") > 0),
        other_commits=runs(column("n_other_commits") > 0),
        named_commits=runs(column("n_named_commits") > 0),
        foreign_commits=runs(column("n_foreign_commits") > 0),
        template_dropped_tokens=mean(arm.metrics["template_dropped_tokens"]),
        format_errors=mean(arm.metrics["n_format_errors"]),
        calls_as_text=mean(arm.metrics["n_calls_as_text"]),
    )


def refetches_by_arm(behaviour: Behaviour, group: Group) -> dict[str, FloatArray]:
    """Return each arm's re-fetches a run by instance; NaN where the messages do not say."""
    counts = shaped_by_arm(group, behaviour.run_ids, behaviour.columns)
    unknown = np.full(len(group.instance_ids), np.nan)
    return {
        name: seed_means(columns["n_refetches"]) if "n_refetches" in columns else unknown
        for name, columns in counts.items()
    }


def leaking_instances(behaviour: Behaviour, group: Group) -> tuple[str, ...]:
    """Return the instances of which some run used the network, or looked at other commits.

    Foreign hashes count as other commits.
    """
    counts = shaped_by_arm(group, behaviour.run_ids, behaviour.columns)
    leaking = np.zeros(len(group.instance_ids), dtype=bool)
    for columns in counts.values():
        for name in ("n_network", "n_other_commits", "n_foreign_commits"):
            if name in columns:
                leaking |= (columns[name] > 0).any(axis=1)
    return tuple(n for n, leaks in zip(group.instance_ids, leaking, strict=True) if leaks)


def _distances(behaviour: Behaviour, group: Group) -> dict[str, FloatArray]:
    """Return the distances of every re-fetch, by arm."""
    if not behaviour.refetches.num_rows:
        return {name: np.empty(0) for name in group.arms}
    runs = behaviour.refetches["run_id"].combine_chunks()
    turns = behaviour.refetches["distance_turns"].to_numpy().astype(np.float64)
    found = {}
    for name, arm in group.arms.items():
        names = [str(r) for r in arm.run_id[arm.done].tolist()]
        mine = pc.is_in(runs, value_set=pc.cast(names, runs.type) if names else runs.slice(0, 0))
        found[name] = turns[mine.to_numpy(zero_copy_only=False)]
    return found


def _mean_of(columns: Mapping[str, FloatArray], name: str) -> FloatArray:
    return seed_means(columns[name]) if name in columns else np.empty(0)


def _ratio(after: FloatArray, before: FloatArray, draws: Draws) -> Estimate:
    """Return the ratio of means over instances known in both arms."""
    known = ~np.isnan(after) & ~np.isnan(before) if len(after) == len(before) else np.zeros(0, bool)
    counts = draws.of(int(known.sum()))
    if not known.any():
        return ratios_of_sums(np.empty(0), np.empty((0, 1)), counts)[0]
    return ratios_of_sums(before[known], after[known][:, None], counts)[0]


def _divided(above: float, below: float) -> float:
    return above / below if below > 0 else float("nan")
