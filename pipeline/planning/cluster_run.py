"""A sweep on a Slurm cluster: arrays submitted once, never while earlier ones may be alive."""

from collections.abc import Sequence

from rich.console import Console

from pipeline.host.slurm import JobState, job_states
from pipeline.planning.local_run import open_requests
from pipeline.planning.prepare import Prepared
from pipeline.planning.submit import submissions, submit_slurm
from pipeline.records.layout import Layout
from pipeline.records.states import run_states


class AliveError(Exception):
    """Earlier jobs of this folder are alive, or nobody can say that they are not."""


def submit_sweep(layout: Layout, sweep: Prepared, console: Console) -> int:
    """Submit what is open and print the job ids and the next commands; return the exit status.

    Raises:
        AliveError: earlier jobs are alive or unknown, and `force` was not given.
    """
    spec = sweep.lock.spec
    if not spec.force:
        refuse_while_alive(layout)
    states = run_states(layout)
    rollouts = open_requests(sweep.lock, sweep.runs, states, "rollouts")
    jobs = submit_slurm(layout, sweep.lock, rollouts)
    arrays = sorted({job.job_id.partition("_")[0] for job in jobs})
    for array in arrays:
        n_tasks = sum(job.job_id.partition("_")[0] == array for job in jobs)
        console.print(f"submitted rollout array {array} ({n_tasks} tasks)", markup=False)
    if spec.grade:
        grading = open_requests(sweep.lock, sweep.runs, states, "grading", after_rollouts=True)
        graders = submit_slurm(layout, sweep.lock, grading, after=arrays)
        for array in sorted({job.job_id.partition("_")[0] for job in graders}):
            console.print(f"submitted grading array {array}, after the rollouts", markup=False)
    console.print(_next_commands(layout), markup=False)
    return 0


def refuse_while_alive(layout: Layout) -> None:
    """Raise `AliveError` if a job of an earlier launch is alive or unknown."""
    job_ids = [
        job["job_id"]
        for record in submissions(layout)
        if record["kind"] == "slurm"
        for job in record["jobs"]
    ]
    states = job_states(job_ids)
    alive = [job_id for job_id, state in states.items() if state is not JobState.ENDED]
    if alive:
        raise AliveError(_alive_text(layout, alive, states))


def _alive_text(layout: Layout, alive: Sequence[str], states: dict[str, JobState]) -> str:
    named = ", ".join(f"{job_id} ({states[job_id].value})" for job_id in alive[:8])
    more = f" and {len(alive) - 8} more" if len(alive) > 8 else ""
    return (
        f"{len(alive)} jobs of an earlier launch may still be running: {named}{more}; nothing was "
        f"submitted.\nWatch them with: python -m pipeline.status {layout.root} --watch\n"
        "If you know that they are gone, launch again with force=true."
    )


def _next_commands(layout: Layout) -> str:
    root = layout.root
    return (
        "next:\n"
        f"  python -m pipeline.status {root} --watch\n"
        f"  python -m pipeline.drain {root}      (finish the runs in flight, then stop)\n"
        f"  python -m pipeline.analyze {root}    (once everything is graded)"
    )
