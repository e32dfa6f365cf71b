"""The Slurm job this process is in: when it ends, which attempt it is, and running it again.

Reads what Slurm put into the environment and asks `squeue` where that says nothing. What a worker
does about its end is `pipeline.worker.deadline`.
"""

import re
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Return when Slurm will end this job, in this node's Unix seconds; None if it cannot say.

    The controller is asked how much time is left, since its clock and the node's may differ. Where
    it does not answer, the end that newer versions put into the environment is taken.
    """
    left_s = _left_s(env["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in env else None
    if left_s is not None:
        return time.time() + left_s
    end = env.get("SLURM_JOB_END_TIME", "")
    return float(end) if end.isdecimal() else None


def _left_s(job_id: str) -> float | None:
    if shutil.which("squeue") is None:
        return None
    done = run_command(
        ["squeue", "--noheader", "--jobs", job_id, "--format=%L"], timeout_s=COMMAND_TIMEOUT_S
    )
    return duration_s(done.text.strip()) if done.returncode == 0 else None


def duration_s(text: str) -> float | None:
    """Return the seconds of Slurm's `[days-][hours:]minutes:seconds`, None for anything else."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def requeue(job: SlurmJob) -> str | None:
    """Ask Slurm to run `job` again; return what it complained about, None if nothing.

    Slurm ends the job at once, so this is the last thing a worker does.
    """
    done = run_command(["scontrol", "requeue", job.job_id], timeout_s=COMMAND_TIMEOUT_S)
    # Slurm may end the command with the job, before it has said that all is well.
    agreed = done.returncode in (0, -signal.SIGTERM)
    return None if agreed else done.text.strip() or f"status {done.returncode}"
