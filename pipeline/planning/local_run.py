"""A sweep on this machine: worker processes to the end, watched and started again when they die.

Ctrl-C stops the workers, which publish what is finished; launching again continues. A worker that
was killed leaves its claims to the next one, so the loop here only looks at what is still open.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.host.interruption import ended_like_ctrl_c
from pipeline.host.process import ProcessIdentity, is_alive, process_identity
from pipeline.planning.job_log import error_in, nothing_started, tail_of
from pipeline.planning.progress import Progress, progress_of, stopped_workers
from pipeline.planning.slurm_site import JobRequest
from pipeline.planning.submit import (
    job_requests,
    live_local_launchers,
    live_local_workers,
    submit_local,
)
from pipeline.plural import plural
from pipeline.records.journal import frame_at, run_of
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock
from pipeline.records.plan import PlannedRun, blocks_of
from pipeline.records.states import RunState, States
from pipeline.worker.loop import HOURS_USED

POLL_S = 0.25
STOP_GRACE_S = 20.0

Show = Callable[[str, Progress], None]


class StuckError(Exception):
    """The workers ended and left runs open that no further attempt will close."""


def run_all(layout: Layout, lock: Lock, runs: Sequence[PlannedRun], show: Show) -> None:
    """Run what is open, then grade what is ungraded; return when all is done.

    Raises:
        StuckError: runs stay open after `max_attempts` rounds of workers.
        KeyboardInterrupt: passed on once the workers have stopped.
    """
    states = States(layout)
    wait_for_earlier_workers(layout, lambda text: show(text, progress_of(layout, runs, states)))
    _rounds(layout, lock, runs, show, phase="rollouts")
    if lock.spec.grade:
        grade_all(layout, lock, runs, show)


def grade_all(layout: Layout, lock: Lock, runs: Sequence[PlannedRun], show: Show) -> None:
    """Grade what is finished and ungraded; return when all of it is.

    Raises:
        StuckError: grades stay open after `max_attempts` rounds of workers.
        KeyboardInterrupt: passed on once the workers have stopped.
    """
    _rounds(layout, lock, runs, show, phase="grading")


def wait_for_earlier_workers(layout: Layout, say: Callable[[str], None]) -> None:
    """Return once no worker of an earlier launch lives on this machine.

    Raises:
        StuckError: another launcher is running on this folder.
    """
    others = live_local_launchers(layout)
    if others:
        raise StuckError(
            f"another launch (process {others[0].pid}) is running on {layout.root}; "
            f"watch it with: python -m pipeline.status {layout.root} --watch"
        )
    while workers := live_local_workers(layout):
        pids = ", ".join(str(worker.pid) for worker in workers)
        say(f"waiting for workers of an earlier launch to stop ({pids})")
        time.sleep(POLL_S)


def _rounds(
    layout: Layout, lock: Lock, runs: Sequence[PlannedRun], show: Show, *, phase: str
) -> None:
    """Start workers for what is open until nothing is.

    A round in which nothing was closed is repeated where workers may have died of something that
    passes: at most `max_attempts` times, and never for runs that have had all their attempts.
    """
    states, since_unix_s = States(layout), time.time()
    idle_rounds = 0
    failed_before = _attempts(states.refresh())
    while requests := open_requests(lock, runs, states.refresh(), phase):
        before = _n_open(runs, states, phase)
        said = _one_round(layout, runs, states, requests, show, phase)
        known = states.refresh()
        unfit = [w["stopped"] for w in stopped_workers(layout, since_unix_s) if w["unfit"]]
        if unfit:
            # Another round would hold the same conversation with the same server.
            raise StuckError(unfit[0])
        if said == HOURS_USED:
            raise StuckError(_stuck_text(layout, runs, states, phase, said))
        if _n_open(runs, states, phase) < before:
            idle_rounds = 0
            continue
        idle_rounds += 1
        attempts = _attempts(known)
        spent = phase == "rollouts" and all(
            attempts.get(run.run_id, 0) - failed_before.get(run.run_id, 0) >= lock.spec.max_attempts
            for run in runs
            if _is_open(known, run, phase)
        )
        if spent or idle_rounds >= lock.spec.max_attempts:
            raise StuckError(_stuck_text(layout, runs, states, phase, said))


def _attempts(states: Mapping[str, RunState]) -> dict[str, int]:
    """Return how often each run has failed on our side."""
    return {run_id: state.infra_attempts for run_id, state in states.items()}


def _one_round(
    layout: Layout,
    runs: Sequence[PlannedRun],
    states: States,
    requests: Sequence[JobRequest],
    show: Show,
    phase: str,
) -> str:
    """Run the workers once; return why one of them ended, empty where all ended well."""
    # Otherwise workers would outlive us, and finish what is in flight before they notice.
    with ended_like_ctrl_c():
        jobs = submit_local(layout, requests)
        _watch(layout, runs, states, jobs, show, phase)
    return next(filter(None, map(_last_words, jobs)), "")


def _last_words(job: Any) -> str:
    text = tail_of(job.paths.stdout) or ""
    return error_in(text) or nothing_started(text)


def _watch(
    layout: Layout,
    runs: Sequence[PlannedRun],
    states: States,
    jobs: Sequence[Any],
    show: Show,
    phase: str,
) -> None:
    try:
        while not all(job.done() for job in jobs):
            show(phase, progress_of(layout, runs, states))
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        show("stopping", progress_of(layout, runs, states))
        _stop(jobs)
        raise
    show(phase, progress_of(layout, runs, states))


def _stop(jobs: Sequence[Any]) -> None:
    """Ask the workers to publish and stop; kill what has not after the grace."""
    identities: list[ProcessIdentity] = []
    for job in jobs:
        process = (
            job._process
        )  # submitit offers SIGINT only, which its controller answers by killing
        identity = process_identity(process.pid)
        if identity is not None and process.poll() is None:
            identities.append(identity)
            process.terminate()
    deadline = time.monotonic() + STOP_GRACE_S
    while any(is_alive(i) for i in identities) and time.monotonic() < deadline:
        time.sleep(0.1)
    for job in jobs:
        if job._process.poll() is None:
            job._process.kill()


def open_requests(
    lock: Lock,
    runs: Sequence[PlannedRun],
    states: Mapping[str, RunState],
    phase: str,
    *,
    after_rollouts: bool = False,
) -> list[JobRequest]:
    """Return the jobs for what is open; `after_rollouts` counts runs that are still to come."""
    if phase == "rollouts":
        open_runs = [run for run in runs if _is_open(states, run, phase)]
        n_blocks = Counter(block.model for block in blocks_of(open_runs))
        n_runs = Counter(run.model for run in open_runs)
        work = {model: (n_blocks[model], n_runs[model]) for model in n_runs}
        return job_requests(lock, work, "rollout")
    n_ungraded = sum(
        _is_open(states, run, phase) or (after_rollouts and _is_open(states, run, "rollouts"))
        for run in runs
    )
    return job_requests(lock, {"": (n_ungraded, n_ungraded)}, "grading")


def _is_open(states: Mapping[str, RunState], run: PlannedRun, phase: str) -> bool:
    state = states.get(run.run_id)
    if phase == "rollouts":
        return state is None or state.to_run
    return state is not None and state.to_grade


def _n_open(runs: Sequence[PlannedRun], states: States, phase: str) -> int:
    known = states.refresh()
    return sum(_is_open(known, run, phase) for run in runs)


def _stuck_text(
    layout: Layout, runs: Sequence[PlannedRun], states: States, phase: str, said: str
) -> str:
    known = states.refresh()
    stuck = [run.run_id for run in runs if _is_open(known, run, phase)]
    named = "\n".join(f"  {run_id}: {_cause(layout, known.get(run_id))}" for run_id in stuck[:5])
    more = f"\n  and {len(stuck) - 5} more" if len(stuck) > 5 else ""
    return (
        f"{plural(len(stuck), 'run')} could not be finished ({phase}):\n{named}{more}\n"
        + (f"a worker ended with: {said:.500}\n" if said else "")
        + f"the workers' logs are in {layout.logs}; fix the cause and launch again: "
        "all finished work is kept"
    )


def _cause(layout: Layout, state: RunState | None) -> str:
    """Return why a run is still open, as far as its last record tells."""
    if state is None or state.failure_class is None:
        return "no worker reached it"
    if state.grade_class is not None:
        return state.grade_class.value
    if not state.to_run:
        return "no grade of its patch was recorded"
    with contextlib.suppress(OSError, ValueError):
        if state.journal is not None and state.offset is not None:
            failure = run_of(frame_at(layout.journal(state.journal), state.offset)).failure or ""
            said = failure.strip().rpartition("\n")[2]
            return f"{state.failure_class.value}: {said:.300}"
    return state.failure_class.value
