"""What sbatch is told: submitit's parameters from the site's pools."""

from collections.abc import Sequence
from typing import Any, Literal

from pipeline.spec.sweep import SweepSpec


def slurm_parameters(
    spec: SweepSpec, role: Literal["rollout", "grading"], model: str, *, after: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the keyword arguments of `SlurmExecutor.update_parameters`."""
    site = spec.cluster
    pool = site.rollout if role == "rollout" else site.grading
    additional: dict[str, Any] = {"kill-on-invalid-dep": "yes", "requeue": True, **pool.extra}
    if pool.gres:
        additional["gres"] = pool.gres
    if after:
        additional["dependency"] = "afterany:" + ":".join(after)
    parameters: dict[str, Any] = {
        "job_name": f"{spec.name}-{role}" + (f"-{model}" if model else ""),
        "time": pool.time_min,
        "cpus_per_task": pool.cpus,
        "array_parallelism": pool.throttle or pool.n_tasks,
        "signal_delay_s": site.signal_delay_s,
        "stderr_to_stdout": True,
        "setup": list(site.setup),
        "srun_args": [f"--cpus-per-task={pool.cpus}", "--cpu-bind=none"],
        "additional_parameters": additional,
    }
    if pool.partition:
        parameters["partition"] = pool.partition
    if pool.mem_gb is not None:
        parameters["mem"] = f"{int(pool.mem_gb * 1024)}M"
    if site.account:
        parameters["account"] = site.account
    return parameters
