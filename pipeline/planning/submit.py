"""From a written plan to jobs: which arrays, with which resources, through submitit.

Jobs get the results folder's path and their index, and read the lock there; nothing else is
pickled. Every launch leaves one file in `submissions/`, so that a later one can ask whether its
jobs are alive.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import submitit

from pipeline.host.files import create_exclusive, read_json
from pipeline.host.process import ProcessIdentity, is_alive, process_identity
from pipeline.host.slurm_environment import without_slurm_options
from pipeline.host.slurm_facts import refusal
from pipeline.planning.estimate import n_tasks_for
from pipeline.planning.progress import status_files
from pipeline.planning.slurm_site import JobRequest, Role, slurm_parameters
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, LockError
from pipeline.spec.sweep import SweepSpec
from pipeline.worker.grade_job import main as grade_main
from pipeline.worker.rollout_job import main as rollout_main


class SubmitError(Exception):
    """Slurm did not take a job; the message says what it said."""


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """A job that a launch started."""

    job_id: str
    """Slurm's id with the array index, or the process id of a local job."""
    role: Role
    model: str
    index: int

    @property
    def array(self) -> str:
        """The id that the tasks of one array share."""
        return self.job_id.partition("_")[0]


def job_requests(
    lock: Lock, open_by_model: Mapping[str, tuple[int, int]], role: Role
) -> list[JobRequest]:
    """Return the jobs for what is open: (blocks, runs) by model; one model "" when grading."""
    pool = lock.spec.cluster.rollout if role == "rollout" else lock.spec.cluster.grading
    return [
        JobRequest(role=role, model=model, n_tasks=n_tasks_for(pool, n_blocks, n_runs))
        for model, (n_blocks, n_runs) in open_by_model.items()
        if n_runs > 0
    ]


def submit_local(layout: Layout, requests: Sequence[JobRequest]) -> list[submitit.Job[Any]]:
    """Start the requested processes on this machine and record them.

    The processes ignore the terminal's Ctrl-C until their own handlers are installed: the
    launcher tells them when to stop.
    """
    executor = submitit.LocalExecutor(folder=_job_logs(layout))
    executor.update_parameters(timeout_min=60 * 24 * 365, stderr_to_stdout=True)
    jobs: list[submitit.Job[Any]] = []
    submitted = []
    with _sigint_ignored():
        for request in requests:
            for index in range(request.n_tasks):
                job = executor.submit(*_call(layout, request, index))
                jobs.append(job)
                submitted.append(
                    SubmittedJob(
                        job_id=job.job_id, role=request.role, model=request.model, index=index
                    )
                )
    record_submission(layout, "local", submitted)
    return jobs


def refusals(layout: Layout, spec: SweepSpec, requests: Sequence[JobRequest]) -> list[str]:
    """Return why sbatch would refuse the requested arrays, one text each; submits nothing."""
    said = []
    for request in requests:
        executor = _slurm_executor(layout, spec, request, requests)
        if request.n_tasks > 1:
            executor.parameters["map_count"] = request.n_tasks
        script = executor._make_submission_file_text("true", "preflight")
        complaint = refusal(script, keep=spec.cluster.keep_variables)
        if complaint is not None:
            said.append(f"{request.role} {request.model}".strip() + f": sbatch says: {complaint}")
    return said


def submit_slurm(
    layout: Layout,
    spec: SweepSpec,
    requests: Sequence[JobRequest],
    *,
    after: Sequence[str] = (),
) -> list[SubmittedJob]:
    """Submit the requested arrays and return their tasks.

    Every array is recorded as soon as it is submitted: a later refusal leaves none forgotten.

    Args:
        layout: the results folder, on a file system that the nodes share.
        spec: the sweep.
        requests: the arrays.
        after: job ids that must have ended first, well or not.

    Raises:
        SubmitError: sbatch refused; its message is kept.
    """
    submitted: list[SubmittedJob] = []
    # Slurm opens a job's log before submitit gets its answer, and a job without one dies silently.
    _job_logs(layout).mkdir(parents=True, exist_ok=True)
    for request in requests:
        executor = _slurm_executor(layout, spec, request, requests, after=after)
        try:
            with without_slurm_options(spec.cluster.keep_variables), executor.batch():
                jobs = [
                    executor.submit(*_call(layout, request, request.first + number))
                    for number in range(request.n_tasks)
                ]
        except submitit.core.utils.FailedJobError as error:
            known = ", ".join(sorted({job.array for job in submitted})) or "nothing"
            raise SubmitError(f"sbatch refused: {error}; submitted before: {known}") from None
        array = [
            SubmittedJob(
                job_id=job.job_id,
                role=request.role,
                model=request.model,
                index=request.first + number,
            )
            for number, job in enumerate(jobs)
        ]
        record_submission(layout, "slurm", array)
        submitted += array
    return submitted


def _slurm_executor(
    layout: Layout,
    spec: SweepSpec,
    request: JobRequest,
    requests: Sequence[JobRequest],
    *,
    after: Sequence[str] = (),
) -> submitit.SlurmExecutor:
    alike = [r for r in requests if (r.role, r.model) == (request.role, request.model)]
    executor = submitit.SlurmExecutor(folder=_job_logs(layout))
    executor.update_parameters(
        **slurm_parameters(spec, request, of_tasks=sum(r.n_tasks for r in alike), after=after)
    )
    return executor


def job_log(layout: Layout, job_id: str) -> Path:
    """Return the file that gets what the job `job_id` prints; it exists once the job has begun."""
    return _job_logs(layout) / f"{job_id}_0_log.out"


def _job_logs(layout: Layout) -> Path:
    return layout.logs.absolute() / "submitit"


def record_submission(layout: Layout, kind: str, jobs: Sequence[SubmittedJob]) -> Path:
    """Write which jobs this launch started and return the file."""
    me = process_identity_of_self()
    now = datetime.now(UTC)
    record = {
        "kind": kind,
        "submitted_at": now.isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "launcher": {"pid": me.pid, "start_ticks": me.start_ticks},
        "jobs": [vars(job) for job in jobs],
    }
    path = layout.submissions / f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}.json"
    create_exclusive(path, json.dumps(record, indent=1).encode())
    return path


def submissions(layout: Layout) -> list[dict[str, Any]]:
    """Return every recorded launch, oldest first.

    Raises:
        LockError: a record is damaged; whether its jobs are alive would be unknown.
    """
    records = []
    for path in sorted(layout.submissions.glob("*.json")):
        try:
            record = read_json(path)
        except ValueError as error:
            raise LockError(f"{error}; first make sure that its jobs have ended") from None
        if not isinstance(record, dict) or not {"kind", "jobs", "launcher"} <= record.keys():
            raise LockError(f"{path} is no record of a launch: remove it or restore it")
        records.append(record)
    return records


def live_local_launchers(layout: Layout) -> list[ProcessIdentity]:
    """Return launchers on this host, other than this process, that are still running."""
    here, me = socket.gethostname(), process_identity_of_self()
    found = {
        ProcessIdentity(record["launcher"]["pid"], record["launcher"]["start_ticks"])
        for record in submissions(layout)
        if record["kind"] == "local" and record["host"] == here
    }
    return [identity for identity in found - {me} if is_alive(identity)]


def live_local_workers(layout: Layout) -> list[ProcessIdentity]:
    """Return local worker processes of earlier launches that are still running on this host."""
    here = socket.gethostname()
    found = []
    for report, _ in status_files(layout):
        if report.get("host") == here and report.get("kind") == "local":
            found.append(ProcessIdentity(report["pid"], report["start_ticks"]))
    return [identity for identity in found if is_alive(identity)]


def process_identity_of_self() -> ProcessIdentity:
    """Return this process's own identity."""
    identity = process_identity(os.getpid())
    if identity is None:
        raise RuntimeError("this process is not in /proc; is /proc mounted?")
    return identity


def _call(layout: Layout, request: JobRequest, index: int) -> tuple[Any, ...]:
    root = str(layout.root.absolute())
    if request.role == "rollout":
        return rollout_main, root, request.model, index
    return grade_main, root, index


@contextlib.contextmanager
def _sigint_ignored() -> Iterator[None]:
    """Start children that a Ctrl-C in the terminal does not reach."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
