"""The Slurm job this process is in: when it ends, which attempt it is, and running it again.

Reads what Slurm put into the environment and asks the controller how much time is left. What a
worker does about its end is `pipeline.worker.deadline`.
"""

import math
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.host.log import say
from pipeline.host.slurm_command import slurm_answer, slurm_said


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


def job_end_unix_s(
    env: Mapping[str, str], *, limit_s: float, now_unix_s: Callable[[], float] = time.time
) -> float | None:
    """Return when Slurm will end this job, in this node's Unix seconds.

    The controller is asked how much time is left, since its clock and the node's may differ. Where
    it does not know, the end that newer versions put into the environment is taken, and last the
    limit that was asked for, from now on: an unknown end is never taken for none.

    Args:
        env: of this process.
        limit_s: the limit that the job was submitted with.
        now_unix_s: a clock.

    Returns:
        None outside a job, or in one that has no limit.
    """
    job_id = env.get("SLURM_JOB_ID")
    if job_id is None:
        return None
    left_s = _left_by_squeue(job_id)
    if left_s is None:
        left_s = _left_by_scontrol(job_id)
    if left_s is not None:
        return None if math.isinf(left_s) else now_unix_s() + left_s
    end = env.get("SLURM_JOB_END_TIME", "")
    if end.isdecimal():
        return float(end)
    say(f"Slurm does not say when job {job_id} ends; it is taken to have {limit_s:.0f} s from now")
    return now_unix_s() + limit_s


def _left_by_squeue(job_id: str) -> float | None:
    text = slurm_answer(["squeue", "--noheader", "--jobs", job_id, "--format=%L"])
    return None if text is None else _limit_s(text.strip())


def _left_by_scontrol(job_id: str) -> float | None:
    text = slurm_answer(["scontrol", "show", "job", job_id]) or ""
    found = dict(re.findall(r"\b(TimeLimit|RunTime)=(\S+)", text))
    limit_s, run_s = _limit_s(found.get("TimeLimit", "")), duration_s(found.get("RunTime", ""))
    return None if limit_s is None or run_s is None else limit_s - run_s


def _limit_s(text: str) -> float | None:
    """Return a limit's seconds, infinite for none; None for `INVALID`, `NOT_SET` and the like."""
    return math.inf if text.upper() == "UNLIMITED" else duration_s(text)


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
    done = slurm_said(["scontrol", "requeue", job.job_id])
    # Slurm may end the command with the job, before it has said that all is well.
    agreed = done.returncode in (0, -signal.SIGTERM)
    return None if agreed else done.text.strip() or f"status {done.returncode}"
