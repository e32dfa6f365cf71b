"""Runs as arrays: for each group of comparable arms, one (instances x seeds) array a metric.

A group is one benchmark, model and agent; models are never pooled. Rows come from the plan, so a
run that is missing is a NaN that can be counted and named, and never an absence. Runs that failed
on our side are missing too.

Not here: what the arrays are compared for (`contrasts`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import numpy.typing as npt

from pipeline.analysis.arrays import BoolArray, FloatArray
from pipeline.analysis.bootstrap import seed_means

METRICS = (
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "shared_input_tokens",
    "shared_output_tokens",
    "reasoning_tokens",
    "cleanup_input_tokens",
    "cleanup_output_tokens",
    "aux_input_tokens",
    "aux_output_tokens",
    "peak_context_tokens",
    "peak_step_context_tokens",
    "n_steps",
    "n_calls",
    "n_observations",
    "n_pruned",
    "pruned_tokens",
    "n_cleanups",
    "n_format_errors",
    "n_calls_as_text",
    "template_dropped_tokens",
    "retry_tokens",
    "wall_s",
    "model_s",
    "tool_s",
    "gpu_s",
)
"""Columns of `runs` that become arrays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmOutcomes:
    """What one arm did; every array has shape (instances, seeds), NaN where there is no run."""

    arm: str
    seeds: tuple[int, ...]
    planned: BoolArray
    done: BoolArray
    """The run ended by itself and judges the arm."""
    resolved: FloatArray
    """1 or 0; NaN without a valid grade."""
    resolved_or_limit: FloatArray
    """The secondary outcome: the same, with what stood in the sandbox of runs cut by a limit."""
    failure_class: npt.NDArray[np.object_]
    """None where there is no run."""
    run_id: npt.NDArray[np.object_]
    metrics: Mapping[str, FloatArray]

    @property
    def complete(self) -> BoolArray:
        """Instances all of whose planned runs are done; shape (instances,)."""
        return np.asarray((self.done | ~self.planned).all(axis=1) & self.planned.any(axis=1))

    @property
    def graded(self) -> BoolArray:
        """Instances all of whose planned runs have a valid grade; shape (instances,)."""
        known = ~np.isnan(self.resolved)
        return np.asarray((known | ~self.planned).all(axis=1) & self.planned.any(axis=1))

    def mean_of(self, metric: str) -> FloatArray:
        """Return each instance's mean over seeds; NaN where there is none."""
        return seed_means(self.metrics[metric])


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """All arms of one benchmark, model and agent, over the same instances in the same order."""

    benchmark: str
    model: str
    agent: str
    evidence: str
    """One label, or several joined by `+` (which the gate refuses)."""
    instance_ids: tuple[str, ...]
    repos: tuple[str, ...]
    arms: Mapping[str, ArmOutcomes]
    excluded: tuple[str, ...] = ()
    """Instances left out by the analysis plan."""

    @property
    def title(self) -> str:
        """The group in words."""
        return f"{self.benchmark}, {self.model}, {self.agent}"


_ROWS = """
WITH wanted AS (
  SELECT run_id, benchmark, model, agent, arm, seed, instance_id, repo, evidence, true AS planned
  FROM plan
  UNION ALL BY NAME
  SELECT run_id, benchmark, model, agent, arm, seed, instance_id, repo, evidence, true AS planned
  FROM runs WHERE (SELECT count(*) FROM plan) = 0
)
SELECT w.run_id, w.benchmark, w.model, w.agent, w.arm, w.seed, w.instance_id, w.repo,
       coalesce(d.evidence, w.evidence) AS evidence, d.run_id IS NOT NULL AS done,
       r.failure_class, CAST(v.resolved AS DOUBLE) AS resolved,
       CAST(v.resolved OR coalesce(l.resolved AND l.patch_sha256 = r.limit_patch_sha256, false)
            AS DOUBLE) AS resolved_or_limit, {metrics}
FROM wanted w
LEFT JOIN runs r USING (run_id)
LEFT JOIN done d USING (run_id)
LEFT JOIN verdicts v USING (run_id)
LEFT JOIN limit_grades l USING (run_id)
ORDER BY done, w.run_id
"""
"""Ordered, so that arrays are filled alike every time; a finished run wins its place."""


def groups_of(
    connection: duckdb.DuckDBPyConnection, *, exclusions: tuple[str, ...] = ()
) -> list[Group]:
    """Return the groups of a sweep; without a plan, of the runs that are there.

    Args:
        connection: from `open_tables`.
        exclusions: instance ids that the analysis plan leaves out.
    """
    metrics = ", ".join(f'CAST(d."{name}" AS DOUBLE) AS "{name}"' for name in METRICS)
    columns = connection.execute(_ROWS.format(metrics=metrics)).fetchnumpy()
    rows = {name: _plain(values) for name, values in columns.items()}
    keys = list(zip(rows["benchmark"], rows["model"], rows["agent"], strict=True))
    return [
        _group(key, {name: v[_where(keys, key)] for name, v in rows.items()}, exclusions)
        for key in sorted(set(keys))
    ]


def _where(keys: list[tuple[str, str, str]], key: tuple[str, str, str]) -> BoolArray:
    return np.fromiter((k == key for k in keys), dtype=bool, count=len(keys))


def _plain(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return a column without its mask: NaN for unknown numbers, None for unknown text."""
    if isinstance(values, np.ma.MaskedArray):
        return values.filled(np.nan if values.dtype.kind == "f" else None)
    return values


def _group(
    key: tuple[str, str, str], rows: dict[str, npt.NDArray[np.generic]], exclusions: tuple[str, ...]
) -> Group:
    repo_of = dict(zip(rows["instance_id"].tolist(), rows["repo"].tolist(), strict=True))
    ids = tuple(sorted(set(repo_of) - set(exclusions)))
    kept = ~np.isin(rows["instance_id"].astype(str), list(exclusions))
    rows = {name: values[kept] for name, values in rows.items()}
    labels = {str(e) for e in rows["evidence"].tolist() if e is not None}
    return Group(
        benchmark=key[0],
        model=key[1],
        agent=key[2],
        evidence="+".join(sorted(labels)) or "unknown",
        instance_ids=ids,
        repos=tuple(str(repo_of[i]) for i in ids),
        arms={arm: _arm(arm, rows, ids) for arm in sorted(set(rows["arm"].tolist()))},
        excluded=tuple(sorted(set(repo_of) & set(exclusions))),
    )


def _arm(arm: str, rows: dict[str, npt.NDArray[np.generic]], ids: tuple[str, ...]) -> ArmOutcomes:
    mine = rows["arm"] == arm
    seeds = tuple(sorted(int(s) for s in set(rows["seed"][mine].tolist())))
    row_of = {name: i for i, name in enumerate(ids)}
    at = (
        np.array([row_of[i] for i in rows["instance_id"][mine].tolist()], dtype=np.int64),
        np.searchsorted(seeds, rows["seed"][mine].astype(np.int64)),
    )
    shape = (len(ids), len(seeds))

    def placed(name: str) -> FloatArray:
        array: FloatArray = np.full(shape, np.nan)
        array[at] = rows[name][mine].astype(np.float64)
        return array

    def placed_text(name: str) -> npt.NDArray[np.object_]:
        array = np.full(shape, None, dtype=object)
        array[at] = rows[name][mine]
        return array

    planned = np.zeros(shape, dtype=bool)
    planned[at] = True
    done = np.zeros(shape, dtype=bool)
    done[at] = rows["done"][mine].astype(bool)
    return ArmOutcomes(
        arm=arm,
        seeds=seeds,
        planned=planned,
        done=done,
        resolved=placed("resolved"),
        resolved_or_limit=placed("resolved_or_limit"),
        failure_class=placed_text("failure_class"),
        run_id=placed_text("run_id"),
        metrics={name: placed(name) for name in METRICS},
    )


def shaped_by_arm(
    group: Group, run_ids: Sequence[str], columns: Mapping[str, FloatArray]
) -> dict[str, dict[str, FloatArray]]:
    """Return columns with one value a run as (instances, seeds) arrays, by arm.

    Runs that are not done, or that the columns do not know, are NaN.

    Args:
        group: whose runs.
        run_ids: run of each value.
        columns: name to values, in the order of `run_ids`.
    """
    row_of = {name: row for row, name in enumerate(run_ids)}
    shaped: dict[str, dict[str, FloatArray]] = {}
    for name, arm in group.arms.items():
        places = np.argwhere(arm.done)
        rows = np.array([row_of.get(str(arm.run_id[tuple(at)]), -1) for at in places], dtype=int)
        known = rows >= 0
        target = tuple(places[known].reshape(-1, 2).T)
        shaped[name] = {}
        for column, values in columns.items():
            array: FloatArray = np.full(arm.done.shape, np.nan)
            array[target] = values[rows[known]]
            shaped[name][column] = array
    return shaped


def without_instances(group: Group, names: Collection[str]) -> Group:
    """Return the group without some instances; its arms keep their seeds."""
    kept = np.array([name not in names for name in group.instance_ids], dtype=bool)

    def cut(arm: ArmOutcomes) -> ArmOutcomes:
        return replace(
            arm,
            planned=arm.planned[kept],
            done=arm.done[kept],
            resolved=arm.resolved[kept],
            resolved_or_limit=arm.resolved_or_limit[kept],
            failure_class=arm.failure_class[kept],
            run_id=arm.run_id[kept],
            metrics={name: values[kept] for name, values in arm.metrics.items()},
        )

    return replace(
        group,
        instance_ids=tuple(n for n in group.instance_ids if n not in names),
        repos=tuple(r for r, keep in zip(group.repos, kept, strict=True) if keep),
        arms={name: cut(arm) for name, arm in group.arms.items()},
    )
