"""The Slurm job this process is in: when it ends, which attempt it is, and running it again.

Reads what Slurm put into the environment and asks `squeue` where that says nothing. What a worker
does about its end is `pipeline.worker.deadline`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.host.process import run_command

COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """One array task, or one job."""

    job_id: str
    """As `scontrol requeue` wants it: `123_4`, never the array's master id alone."""
    restarts: int
    """How often Slurm has started it before."""
    node: str


def slurm_job(env: Mapping[str, str]) -> SlurmJob | None:
    """Return the job that `env` belongs to, None outside one."""
    if "SLURM_JOB_ID" not in env:
        return None
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    return SlurmJob(
        job_id=f"{array}_{task}" if array and task else env["SLURM_JOB_ID"],
        restarts=int(env.get("SLURM_RESTART_COUNT", "0")),
        node=env.get("SLURMD_NODENAME", ""),
    )


def job_end_unix_s(env: Mapping[str, str]) -> float | None:
    """Return when Slurm will end this job, in Unix seconds; None if it will not or cannot say.

    Older versions do not put the end time into the environment; squeue is then asked, once.
    """
    if "SLURM_JOB_END_TIME" in env:
        return float(env["SLURM_JOB_END_TIME"])
    if "SLURM_JOB_ID" not in env or shutil.which("squeue") is None:
        return None
    done = run_command(
        ["squeue", "--noheader", "--jobs", env["SLURM_JOB_ID"], "--format=%e"],
        timeout_s=COMMAND_TIMEOUT_S,
    )
    try:
        # The job's own clock and zone: squeue prints local time, as this process reads it.
        return datetime.fromisoformat(done.text.strip().splitlines()[0]).timestamp()
    except (ValueError, IndexError):
        return None


def requeue(job: SlurmJob) -> str | None:
    """Ask Slurm to run `job` again; return what it complained about, None if nothing.

    Slurm ends the job at once, so this is the last thing a worker does.
    """
    done = run_command(["scontrol", "requeue", job.job_id], timeout_s=COMMAND_TIMEOUT_S)
    return None if done.returncode == 0 else done.text.strip() or f"status {done.returncode}"
