"""What a sweep will take: runs, jobs, GPU-hours, service units, files. Before it is submitted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.planning.slurm_site import pool_gpus
from pipeline.plural import plural
from pipeline.records.plan import PlannedRun, blocks_of
from pipeline.spec.site import PoolSpec
from pipeline.spec.sweep import SweepSpec

FILES_A_WORKER = 10
FILES_A_BLOCK = 2
FILES_A_SWEEP = 40


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of what is still to be run."""

    n_runs: int
    n_blocks: int
    n_jobs: int
    gpu_hours: float
    core_hours: float
    service_units: float
    wall_hours: float
    """With as many tasks running as the throttle allows, queue time aside."""
    n_files: int


def n_tasks_for(pool: PoolSpec, n_blocks: int, n_runs: int) -> int:
    """Return how many tasks of `pool` so much work keeps busy, at most what the pool allows.

    A block's runs share a task, and a task has `concurrency` runs in flight: more tasks than that
    would start servers that find nothing to do.
    """
    return min(pool.n_tasks, n_blocks, math.ceil(n_runs / pool.concurrency))


def estimated(
    spec: SweepSpec, runs: Sequence[PlannedRun], *, run_s: float | None = None
) -> Estimate:
    """Return the estimate for `runs`, at `run_s` each, or else at their agent's expectation."""
    pool = spec.cluster.rollout
    by_model: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_model.setdefault(run.model, []).append(run)
    blocks = blocks_of(sorted(runs, key=lambda run: run.position))
    gpu_hours = core_hours = wall_hours = 0.0
    n_jobs = 0
    for model, members in by_model.items():
        n_runs = len(members)
        tasks = n_tasks_for(pool, sum(block.model == model for block in blocks), n_runs)
        at_once = max(1, min(tasks, pool.throttle or tasks))
        hours = [(run_s or spec.agents[run.agent].expected_wall_s) / 3600 for run in members]
        # Workers that start together claim a block each: every server lasts one run at least.
        servers = min(at_once, n_runs)
        server_hours = max(sum(hours) / pool.concurrency, servers * max(hours))
        # What a job asks for is charged, used or not.
        gpu_hours += server_hours * max(spec.models[model].n_gpus, pool_gpus(pool))
        core_hours += server_hours * pool.cpus
        wall_hours = max(wall_hours, server_hours / at_once)
        n_jobs += tasks
    n_grading = n_tasks_for(spec.cluster.grading, len(runs), len(runs)) if spec.grade else 0
    units = core_hours * spec.cluster.su_per_core_hour + gpu_hours * spec.cluster.su_per_gpu_hour
    return Estimate(
        n_runs=len(runs),
        n_blocks=len(blocks),
        n_jobs=n_jobs + n_grading,
        gpu_hours=gpu_hours,
        core_hours=core_hours,
        service_units=units,
        wall_hours=wall_hours,
        n_files=FILES_A_SWEEP + FILES_A_WORKER * (n_jobs + n_grading) + FILES_A_BLOCK * len(blocks),
    )


def hours_text(hours: float) -> str:
    """Return hours with as many digits as say something."""
    return f"{hours:,.1f}" if hours >= 1 or hours == 0 else f"{hours:.2g}"


def range_text(hours: tuple[float, float]) -> str:
    """Return the least and the most hours as one number, or as a range."""
    return " to ".join(dict.fromkeys(map(hours_text, hours)))


def estimate_text(
    estimate: Estimate,
    *,
    used_gpu_hours: float = 0.0,
    expected_gpu_hours: tuple[float, float] | None = None,
) -> str:
    """Return the estimate as the lines that `dry_run=true` prints.

    Args:
        estimate: without forks and looks.
        used_gpu_hours: by earlier launches.
        expected_gpu_hours: with the forks and looks of the sweep; None, or the same: none.
    """
    used = f" more than the {hours_text(used_gpu_hours)} that are used" if used_gpu_hours else ""
    if expected_gpu_hours is not None and expected_gpu_hours[0] < estimate.gpu_hours:
        used += f" ({range_text(expected_gpu_hours)} expected with forks and looks)"
    units = f", {estimate.service_units:,.0f} service units" if estimate.service_units else ""
    return (
        f"{plural(estimate.n_runs, 'run')} in {plural(estimate.n_blocks, 'block')}, "
        f"{plural(estimate.n_jobs, 'job')}\n"
        f"about {estimate.gpu_hours:,.1f} GPU-hours{used} and {estimate.core_hours:,.1f} core-hours"
        f"{units}; {_hours(estimate.wall_hours)} with all jobs running\n"
        f"about {estimate.n_files:,} files"
    )


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{math.ceil(hours * 60)} min"
