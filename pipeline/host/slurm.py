"""What this machine's Slurm says, where there is one: the states of jobs.

Silence is not failure: a job that neither squeue nor sacct knows is UNKNOWN, and only a queue that
answered makes a job ENDED.
"""

import os
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pipeline.host.slurm_command import slurm_answer


class JobState(StrEnum):
    """What is known of a job."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


_ALIVE = {
    "PENDING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "SUSPENDED": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "RUNNING": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
}


def job_states(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Return the state of each job (`123` or `123_4`), asking squeue once.

    A job that the queue no longer lists has ended. A queue that does not answer leaves all of
    them UNKNOWN.
    """
    wanted = list(dict.fromkeys(job_ids))
    if not wanted:
        return {}
    listed = _squeue()
    if listed is None:
        return dict.fromkeys(wanted, JobState.UNKNOWN)
    return {
        job_id: listed.get(job_id, listed.get(job_id.partition("_")[0], JobState.ENDED))
        for job_id in wanted
    }


def pending_reasons(job_ids: Iterable[str]) -> dict[str, str]:
    """Return why those of the jobs that wait do, in Slurm's words; empty where it does not say."""
    text = slurm_answer(
        [
            *("squeue", "--noheader", "--array", "--user", str(os.getuid())),
            *("--states", "PENDING", "--format=%i %r"),
        ]
    )
    wanted = set(job_ids)
    pairs = (line.strip().partition(" ") for line in (text or "").splitlines())
    return {job_id: reason.strip() for job_id, _, reason in pairs if job_id in wanted}


def ending(job_id: str) -> str | None:
    """Return how a job ended and why, in Slurm's words; None where it has forgotten the job."""
    shown = slurm_answer(["scontrol", "show", "job", job_id])
    if shown is not None:
        found = dict(re.findall(r"\b(JobState|Reason)=(\S+)", shown))
        words = [found.get("JobState"), found.get("Reason")]
    else:
        asked = ["sacct", "-nXP", "--jobs", job_id, "--format=State,Reason"]
        words = list((slurm_answer(asked) or "").strip().partition("\n")[0].split("|"))
    said = [word for word in words if word and word != "None"]
    return ", ".join(said) or None


def _squeue() -> dict[str, JobState] | None:
    """Return this user's jobs by id, None when squeue gave no answer."""
    text = slurm_answer(
        ["squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format=%i %T"]
    )
    return None if text is None else dict(_listed(text.splitlines()))


def _listed(lines: Sequence[str]) -> Iterable[tuple[str, JobState]]:
    for line in lines:
        job_id, _, state = line.strip().partition(" ")
        if job_id:
            yield job_id, _ALIVE.get(state.strip(), JobState.ENDED)
