"""A sweep on a Slurm cluster: arrays submitted once, never while earlier ones may be alive."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from pipeline.host.environment import environment
from pipeline.host.slurm import JobState, job_states
from pipeline.host.slurm_environment import submission_options
from pipeline.host.slurm_facts import associations, has_slurm, n_queued, slurm_limits, tightest
from pipeline.planning.local_run import open_requests
from pipeline.planning.prepare import Prepared
from pipeline.planning.problem import Problem
from pipeline.planning.slurm_site import JobRequest, fitted, pool_gpus, split
from pipeline.planning.submit import SubmittedJob, refusals, submissions, submit_slurm
from pipeline.plural import plural
from pipeline.records.exclusive import exclusive_claim
from pipeline.records.layout import Layout
from pipeline.records.states import run_states
from pipeline.spec.site import SiteSpec

CLAIM_STALE_S = 300.0
"""A launch that submits shows signs of life between two arrays, and sbatch may be slow."""


class AliveError(Exception):
    """Earlier jobs of this folder are alive, or nobody can say that they are not."""


def arrays_for(layout: Layout, sweep: Prepared) -> list[JobRequest]:
    """Return the arrays for what is open, as this site accepts them; rollouts first.

    Raises:
        ValueError: the site's submit limit leaves no room for them.
    """
    spec = sweep.lock.spec
    states = run_states(layout) if layout.lock.exists() else {}
    requests = open_requests(sweep.lock, sweep.runs, states, "rollouts")
    if spec.grade:
        requests += open_requests(sweep.lock, sweep.runs, states, "grading", after_rollouts=True)
    limits = slurm_limits()
    size = tightest([spec.cluster.max_array_size, limits.max_array_size if limits else None])
    return split(fitted(requests, _room(spec.cluster)), size)


def site_problems(layout: Layout, sweep: Prepared) -> Iterator[Problem]:
    """Yield why this site would not run the sweep; nothing is submitted by asking."""
    if not has_slurm():
        yield Problem(
            field="cluster",
            message="sbatch is not installed here; launch from a login node of the cluster",
        )
        return
    yield from _too_few_gpus(sweep)
    try:
        arrays = arrays_for(layout, sweep)
    except ValueError as error:
        yield Problem(field="cluster.max_submit", message=str(error))
        return
    for complaint in refusals(layout, sweep.lock.spec, arrays):
        yield Problem(
            field="cluster",
            message=f"{complaint} (set cluster.rollout.* or cluster.grading.*; "
            "what the site has: python -m pipeline.doctor "
            f"cluster={sweep.lock.spec.cluster.name})",
        )


def submit_sweep(layout: Layout, sweep: Prepared, console: Console) -> bool:
    """Submit what is open and print the job ids and the next commands.

    Returns whether anything was open.

    Raises:
        AliveError: earlier jobs are alive or unknown, and `force` was not given.
        ClaimError: another launch of this folder has been submitting for long.
        SubmitError: sbatch refused.
    """
    spec = sweep.lock.spec
    # Of two launches at once the second waits here, and then finds the jobs of the first.
    with exclusive_claim(layout.submission_claim, stale_s=CLAIM_STALE_S) as claim:
        if not spec.force:
            refuse_while_alive(layout)
        arrays = arrays_for(layout, sweep)
        if not arrays:
            return False
        for line in shell_options(spec.cluster, environment()):
            console.print(line, markup=False)
        rollouts = submit_slurm(layout, spec, [a for a in arrays if a.role == "rollout"])
        _say(console, rollouts, "rollout")
        claim.beat()
        after = sorted({job.array for job in rollouts})
        grading = [a for a in arrays if a.role == "grading"]
        graders = submit_slurm(layout, spec, grading, after=after)
        _say(console, graders, "grading", "after the rollouts" if after else "")
    console.print(_next_commands(layout), markup=False)
    return True


def shell_options(site: SiteSpec, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for every option of sbatch that the launching shell has set: taken or not."""
    for name, value in submission_options(env).items():
        if name in site.keep_variables:
            yield f"from this shell, overriding the configuration: {name}={value}"
        else:
            yield f"not passed on to Slurm: {name}={value} (cluster.keep_variables=[{name}] would)"


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


def _room(site: SiteSpec) -> int | None:
    """Return how many tasks may be submitted now, None where nothing limits them."""
    enforced = (limits := slurm_limits()) is not None and limits.enforced is not None
    of_site = [a.max_submit for a in associations() or ()] if enforced else []
    most = tightest([site.max_submit, *of_site])
    return None if most is None else most - (n_queued() or 0)


def _too_few_gpus(sweep: Prepared) -> Iterator[Problem]:
    spec = sweep.lock.spec
    asked = pool_gpus(spec.cluster.rollout)
    for name, model in spec.models.items():
        if model.kind == "vllm" and asked < model.n_gpus:
            yield Problem(
                field="cluster.rollout.gres",
                message=f"model {name} needs {plural(model.n_gpus, 'GPU')}, and {asked} requested; "
                f"use for example cluster.rollout.gres=gpu:a100:{model.n_gpus}",
            )


def _say(console: Console, jobs: Sequence[SubmittedJob], role: str, note: str = "") -> None:
    for array in sorted({job.array for job in jobs}):
        tasks = [job for job in jobs if job.array == array]
        words = [
            f"submitted {role} array {array} ({plural(len(tasks), 'task')})",
            tasks[0].model,
            note,
        ]
        console.print(", ".join(word for word in words if word), markup=False)


def _alive_text(layout: Layout, alive: Sequence[str], states: dict[str, JobState]) -> str:
    named = ", ".join(f"{job_id} ({states[job_id].value})" for job_id in alive[:8])
    more = f" and {len(alive) - 8} more" if len(alive) > 8 else ""
    return (
        f"{plural(len(alive), 'job')} of an earlier launch may still be running: {named}{more}; "
        "nothing was "
        f"submitted.\nWatch them with: python -m pipeline.status {layout.root} --watch\n"
        "If you know that they are gone, launch again with force=true."
    )


def _next_commands(layout: Layout) -> str:
    root = layout.root
    return (
        "next:\n"
        f"  python -m pipeline.status {root} --watch\n"
        f"  python -m pipeline.drain {root}      (finish the runs in flight, then stop)\n"
        "  the same launch again               (once the jobs are gone: runs what is missing, "
        "else makes the report)"
    )
