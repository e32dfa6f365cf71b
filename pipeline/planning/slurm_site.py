"""From what is open and what the site allows to arrays: how many, how large, with what resources.

Owns the split by the largest array and by the submit limit, and what sbatch is told. Submits
nothing; see `pipeline.planning.submit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.spec.sweep import SweepSpec

Role = Literal["rollout", "grading"]


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One array (Slurm) or set of processes (local) to submit."""

    role: Role
    model: str
    """Empty for grading."""
    n_tasks: int
    first: int = 0
    """Number of the first task: an array that was split goes on counting."""


def split(requests: Sequence[JobRequest], max_array_size: int | None) -> list[JobRequest]:
    """Return the requests cut into arrays that the site accepts."""
    return [part for request in requests for part in _parts(request, max_array_size)]


def fitted(requests: Sequence[JobRequest], room: int | None) -> list[JobRequest]:
    """Return the requests with so few tasks that all of them may be submitted at once.

    Every request keeps a task at least; fewer tasks take longer and do the same.

    Args:
        requests: the arrays.
        room: how many tasks may be submitted now; None: as many as we like.

    Raises:
        ValueError: there is no room for one task each.
    """
    wanted = sum(request.n_tasks for request in requests)
    if room is None or wanted <= room:
        return list(requests)
    if room < len(requests):
        raise ValueError(
            f"the site allows {max(room, 0)} more tasks in the queue and {len(requests)} arrays "
            "are needed; wait until jobs of yours have ended, or raise cluster.max_submit"
        )
    spare, spare_wanted = room - len(requests), wanted - len(requests)
    return [
        replace(request, n_tasks=1 + (request.n_tasks - 1) * spare // spare_wanted)
        for request in requests
    ]


def slurm_parameters(
    spec: SweepSpec, request: JobRequest, *, of_tasks: int, after: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the keyword arguments of `SlurmExecutor.update_parameters`.

    Args:
        spec: the sweep.
        request: the array.
        of_tasks: tasks of this role and model in all arrays, which share the pool's throttle.
        after: ids of jobs that must have ended first, well or not.
    """
    site = spec.cluster
    pool = site.rollout if request.role == "rollout" else site.grading
    additional: dict[str, Any] = {"kill-on-invalid-dep": "yes", "requeue": True, **pool.extra}
    if pool.gres:
        additional["gres"] = pool.gres
    if pool.mem_gb is not None:
        additional["mem"] = f"{int(pool.mem_gb * 1024)}M"
    if after:
        additional["dependency"] = "afterany:" + ":".join(after)
    throttle = pool.throttle or of_tasks
    parameters: dict[str, Any] = {
        "job_name": "-".join(part for part in (spec.name, request.role, request.model) if part),
        "time": pool.time_min,
        "cpus_per_task": pool.cpus,
        "array_parallelism": max(1, throttle * request.n_tasks // of_tasks),
        "signal_delay_s": site.signal_delay_s,
        "stderr_to_stdout": True,
        "setup": list(site.setup),
        # A newer srun does not inherit the job's CPU count and would pin the server to one core.
        "srun_args": [f"--cpus-per-task={pool.cpus}", "--cpu-bind=none"],
        "additional_parameters": additional,
    }
    if pool.partition:
        parameters["partition"] = pool.partition
    if site.account:
        parameters["account"] = site.account
    return parameters


def _parts(request: JobRequest, max_array_size: int | None) -> Iterator[JobRequest]:
    size = max_array_size or request.n_tasks
    for first in range(0, request.n_tasks, size):
        yield replace(
            request, first=request.first + first, n_tasks=min(size, request.n_tasks - first)
        )
