"""From what is open and what the site allows to arrays: how many, how large, with what resources.

Owns the split by the largest array and by the submit limit, and what sbatch is told. Submits
nothing; see `pipeline.planning.submit`.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pipeline.host.slurm_facts import gpus_of
from pipeline.records.layout import file_name
from pipeline.spec.site import PoolSpec
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
            "are needed; wait until some of your jobs end, or raise cluster.max_submit"
        )
    spare, spare_wanted = room - len(requests), wanted - len(requests)
    return [
        replace(request, n_tasks=1 + (request.n_tasks - 1) * spare // spare_wanted)
        for request in requests
    ]


_OWN_KEYS = {
    **{name: name for name in ("partition", "qos", "constraint", "reservation", "nodelist")},
    **{name: name for name in ("exclude", "licenses", "gres")},
    **{"time": "time_min", "mem": "mem_gb", "cpus-per-task": "cpus"},
}
"""Options of sbatch that have a key of the pool's, with its name."""
_OURS = {
    **{"account": "say cluster.account", "signal": "say cluster.signal_delay_s"},
    "array": "say cluster.ROLE.n_tasks and cluster.ROLE.throttle",
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), "a task has one node and one process"),
    **dict.fromkeys(("dependency", "job-name", "output", "error", "open-mode"), "leave it out"),
}
"""Options that launch decides, with what to do instead."""
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task")


def pool_gpus(pool: PoolSpec) -> int:
    """Return how many GPUs a task of the pool asks for, by `gres` or by an option of `extra`."""
    asked = extra_options(pool)
    return gpus_of(pool.gres) + max(
        (gpus_of(f"gpu:{asked[name]}") for name in _GPU_OPTIONS if name in asked), default=0
    )


def extra_options(pool: PoolSpec) -> dict[str, Any]:
    """Return the options of `extra` that are given, by sbatch's own spelling."""
    return {name: value for name, value in _spelled(pool).items() if not _left_out(value)}


def unusable_words(spec: SweepSpec, results: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys whose values cannot be handed to sbatch, each with what to say instead."""
    odd = re.search(r"[%\\\x00-\x1f\x7f]", str(results))
    if odd is not None:
        yield (
            "results",
            f"{str(results)!r} has {odd[0]!r} in it, which Slurm reads as a pattern in the name of "
            "a job's log; name another folder",
        )
    for role, pool in (("rollout", spec.cluster.rollout), ("grading", spec.cluster.grading)):
        for name, value in _spelled(pool).items():
            key = f"cluster.{role}.extra"
            # sbatch takes the beginning of an option's name for the whole.
            option = next((o for o in (*_OWN_KEYS, *_OURS) if o.startswith(name)), name)
            if option in _OWN_KEYS:
                yield key, f"{name} has its own key: use cluster.{role}.{_OWN_KEYS[option]}"
            elif option in _OURS:
                yield key, f"{name} is set by launch: {_OURS[option].replace('ROLE', role)}"
            elif not isinstance(value, str | int | float | bool | None):
                yield key, f"{name} needs a text, a number, true, false or null, not {value!r}"
        words = {**_pool_options(pool), **extra_options(pool), "account": spec.cluster.account}
        for name, value in words.items():
            if re.search(r"[\x00-\x1f\x7f]", str(value)):
                yield (
                    f"cluster.{role}",
                    f"{name}: {value!r} holds a line end or a control character",
                )


def slurm_parameters(
    spec: SweepSpec, request: JobRequest, *, of_tasks: int, after: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the keyword arguments of `SlurmExecutor.update_parameters`.

    Args:
        spec: the sweep, without `unusable_words`.
        request: the array.
        of_tasks: tasks of this role and model in all arrays, which share the pool's throttle.
        after: ids of jobs that must have ended first, well or not.
    """
    site = spec.cluster
    pool = site.rollout if request.role == "rollout" else site.grading
    options: dict[str, Any] = {
        "kill-on-invalid-dep": "yes",
        "requeue": True,
        **_pool_options(pool),
        "account": site.account,
        "dependency": "afterany:" + ":".join(after) if after else None,
        **_spelled(pool),
    }
    throttle = pool.throttle or of_tasks
    name = "-".join(part for part in (spec.name, request.role, request.model) if part)
    return {
        "job_name": file_name(name),
        "time": pool.time_min,
        "cpus_per_task": pool.cpus,
        "array_parallelism": max(1, throttle * request.n_tasks // of_tasks),
        "signal_delay_s": site.signal_delay_s,
        "stderr_to_stdout": True,
        "setup": [_checked_line(line) for line in site.setup],
        # A newer srun does not inherit the job's CPU count and would pin the server to one core.
        "srun_args": [f"--cpus-per-task={pool.cpus}", "--cpu-bind=none"],
        # submitit would label every job with its own name.
        "wckey": None,
        "additional_parameters": {k: v for k, v in options.items() if not _left_out(v)},
    }


def _pool_options(pool: PoolSpec) -> dict[str, Any]:
    """Return the options that have a key of their own and are handed on as they are."""
    named = {name: getattr(pool, key) for name, key in _OWN_KEYS.items() if name == key}
    return {**named, "mem": None if pool.mem_gb is None else f"{int(pool.mem_gb * 1024)}M"}


def _spelled(pool: PoolSpec) -> dict[str, Any]:
    return {name.lstrip("-").replace("_", "-"): value for name, value in pool.extra.items()}


def _left_out(value: Any) -> bool:
    return value is None or value is False


def _checked_line(line: str) -> str:
    """Return a line of `cluster.setup` that ends the job, and says so, when it fails."""
    said = shlex.quote(f"planprune: this line of cluster.setup failed: {line}")
    return f"{{ :; {line}\n}} || {{ echo {said} >&2; exit 1; }}"


def _parts(request: JobRequest, max_array_size: int | None) -> Iterator[JobRequest]:
    size = max_array_size or request.n_tasks
    for first in range(0, request.n_tasks, size):
        yield replace(
            request, first=request.first + first, n_tasks=min(size, request.n_tasks - first)
        )
