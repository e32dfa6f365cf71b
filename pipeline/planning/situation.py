"""Where a sweep stands and what to do next: what is under way, what it has cost, what is wrong.

Built from the results folder, Slurm's queue where it answers, and the logs of jobs that have ended.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.host.slurm import JobState, job_states, pending_reasons
from pipeline.planning.estimate import estimated
from pipeline.planning.findings import Finding, findings
from pipeline.planning.history import history_of
from pipeline.planning.levers import expected_gpu_hours
from pipeline.planning.progress import Progress, progress_of
from pipeline.planning.submit import live_local_launchers, submissions
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock
from pipeline.records.plan import PlannedRun
from pipeline.records.states import States


@dataclass(frozen=True, kw_only=True)
class GpuHours:
    """What the sweep has used of GPUs, will use, and may use."""

    used: float
    left: float
    """Expected for the runs that are open, with forks, at the times of those that are known."""
    cap: float | None


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A sweep at one moment."""

    progress: Progress
    queue: Mapping[str, int]
    """How many Slurm jobs of this folder are in which state."""
    pending: Mapping[str, int]
    """How many of them wait for which reason, in Slurm's words."""
    gpu_hours: GpuHours
    is_complete: bool
    """Nothing is left to be run, nor to be graded where grades are wanted."""
    is_under_way: bool
    """Some job or worker is alive, or nobody can say that none is."""
    findings: Sequence[Finding]


def situation_of(
    layout: Layout, lock: Lock, runs: Sequence[PlannedRun], states: States
) -> Situation:
    """Return where the sweep stands now; `states` is kept between calls.

    Raises:
        LockError: a record of a launch is damaged.
    """
    progress = progress_of(layout, runs, states)
    past = history_of(layout, runs, states.refresh())
    records = [record for record in submissions(layout) if record["kind"] == "slurm"]
    jobs = job_states(job["job_id"] for record in records for job in record["jobs"])
    alive = [job_id for job_id, state in jobs.items() if state is not JobState.ENDED]
    is_complete = progress.all_run and (progress.all_graded or not lock.spec.grade)
    is_under_way = bool(alive or progress.workers or live_local_launchers(layout))
    without_forks = estimated(lock.spec, past.todo, run_s=past.mean_wall_s).gpu_hours
    _, left = expected_gpu_hours(lock.spec, past.todo, without_forks, is_whole=False)
    return Situation(
        progress=progress,
        queue={s.value: n for s in JobState if (n := sum(state is s for state in jobs.values()))},
        pending=Counter(pending_reasons(alive).values()) if alive else {},
        gpu_hours=GpuHours(
            used=past.used_gpu_hours,
            left=left,
            cap=lock.spec.max_gpu_hours,
        ),
        is_complete=is_complete,
        is_under_way=is_under_way,
        findings=findings(
            layout, lock.spec, progress, past, records[-1]["jobs"] if records else (), jobs
        )
        if not is_complete
        else [],
    )
