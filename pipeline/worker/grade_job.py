"""A grading worker: finished runs in, grades out, on nodes without a GPU.

Owns the life of one grading task and the border where whatever goes wrong on our side becomes
`grade_infra`: the only broad `except` beside `execute`'s. Every patch is graded in a fresh sandbox,
unless the very same one was graded before. A timeout is tried once more, then counts. The rules
of grading are `pipeline.grading`'s; blocks are claimed as rollouts claim them, under other names.

    python -m pipeline.worker.grade_job RESULTS --index N
"""

import argparse
import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.benchmarks.format import Grader
from pipeline.benchmarks.registry import format_of
from pipeline.grading.cache import GradeCache, GradeKey
from pipeline.grading.evaluation import N_TRIES, EvalSite, eval_site
from pipeline.grading.verdict import Grade, has_content, infra_failed, without_patch
from pipeline.host.claim_file import Owner, this_owner
from pipeline.host.environment import environment
from pipeline.host.log import say
from pipeline.host.slurm_job import SlurmJob, job_end_unix_s, slurm_job
from pipeline.plural import plural
from pipeline.records.failure import DiskError, FailureClass, GradeClass
from pipeline.records.grade_record import GradeRecord, PatchKind
from pipeline.records.journal import Journal, new_journal
from pipeline.records.layout import Layout, grade_log_member
from pipeline.records.lock import Lock, read_lock, read_rows
from pipeline.records.plan import blocks_of, read_plan
from pipeline.records.rebuild import recorded_run
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States
from pipeline.worker.blocks import Assignment, BlockQueue
from pipeline.worker.claims import ClaimBoard
from pipeline.worker.deadline import Deadline
from pipeline.worker.grade_cache import PREFIX, cached_grades
from pipeline.worker.grade_logs import GradeLogs
from pipeline.worker.ledgers import GradeLedger, Work, limit_to_grade
from pipeline.worker.loop import Recorded, WorkLoop
from pipeline.worker.reporting import StatusFile
from pipeline.worker.rollout_job import requeue_task, worker_name
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from pipeline.worker.stopping import StopWatch, launcher_of


def main(results: str, index: int) -> dict[str, Any]:
    """Grade what is finished and ungraded until none is left here; return what was done.

    Main thread only: signal handlers are installed, and restored at the end.

    Raises:
        LockError, FileNotFoundError: the folder holds no sweep.
        InfraError: the disk or the sandboxes are beyond what this worker can mend.
    """
    env = environment()
    layout = Layout(Path(results))
    stop = StopWatch(layout.drain_request, launcher=launcher_of(env))
    restore = stop.install()
    try:
        lock = read_lock(layout.lock)
        job = slurm_job(env)
        name = worker_name("grade", "", index, job)
        owner = this_owner(name, job.job_id if job else None)
        board = ClaimBoard(layout, owner, stale_s=lock.spec.cluster.stale_s)
        board.start_heartbeat(lock.spec.cluster.heartbeat_s)
        try:
            end_unix_s = job_end_unix_s(env, limit_s=lock.spec.cluster.grading.time_min * 60)
            worker = GradeWorker(layout, lock, owner, board, stop, job, end_unix_s)
            summary = worker.run()
        finally:
            board.release_all()
            board.stop_heartbeat()
        summary["requeued"] = requeue_task(
            job, worker.loop, layout, worker.has_open, lock.spec.cluster.max_requeues
        )
        say(str(summary))
        return summary
    finally:
        restore()


@dataclass(frozen=True, kw_only=True)
class GradeContext:
    """What all gradings of one worker share."""

    rows: Mapping[str, Mapping[str, Any]]
    sandboxes: OpenSandboxes
    cache: GradeCache
    logs: GradeLogs | None
    timeout_s: float
    site: EvalSite
    grader: Grader
    worker: str
    node: str
    now: Callable[[], float]
    """Unix seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A grade, and how many tries ran into the time limit before it."""

    grade: Grade
    timeouts: int = 0


class GradeWorker:
    """One grading attempt. `run` is called once, in the main thread."""

    def __init__(
        self,
        layout: Layout,
        lock: Lock,
        owner: Owner,
        board: ClaimBoard,
        stop: StopWatch,
        job: SlurmJob | None,
        end_unix_s: float | None,
    ) -> None:
        """Read the plan and what is done of it; nothing is started."""
        spec = lock.spec
        self._layout, self._lock, self._owner, self._board = layout, lock, owner, board
        self._node = job.node if job and job.node else owner.host
        self._runs = read_plan(layout.plan)
        self._ledger = GradeLedger(States(layout))
        self._queue = BlockQueue(
            blocks_of(self._runs),
            board,
            self._ledger,
            max_attempts=spec.max_attempts,
            prefix=PREFIX,
        )
        deadline = Deadline(
            end_unix_s=end_unix_s,
            margin_s=float(spec.cluster.signal_delay_s),
            expected_wall_s=spec.grade_timeout_s,
            now_unix_s=time.time,
        )
        self._status = StatusFile(layout, owner, role="grading", model="", job=job)
        self.loop = WorkLoop(
            self._queue,
            deadline,
            stop,
            self._status,
            concurrency=spec.cluster.grading.concurrency,
            work=self._grade_and_record,
        )
        self._context: GradeContext | None = None
        self._journal: Journal | None = None

    def run(self) -> dict[str, Any]:
        """Grade until nothing is left to do here; return what was done.

        Raises:
            InfraError: something is broken that this worker cannot mend.
        """
        try:
            if self.loop.found_work():
                with contextlib.ExitStack() as stack:
                    self._context = self._open(stack)
                    self.loop.run(lambda: None, self._context.sandboxes.stop_all)
        finally:
            self._status.remove()
        self._say_what_is_left()
        return {
            "worker": self._owner.worker,
            "graded": self.loop.counts.finished,
            "grade_infra": self.loop.counts.infra_failed,
            "stopped_by": self.loop.stopped_by.value if self.loop.stopped_by else None,
        }

    def has_open(self) -> bool:
        """Return whether finished runs are still ungraded, whoever works on them."""
        return self._queue.has_open()

    def _open(self, stack: contextlib.ExitStack) -> GradeContext:
        """Return what gradings need; it is closed at the end, come what may."""
        # Commands are the benchmark's, but the code they test is the model's.
        kinds = {model.kind for model in self._lock.spec.models.values()}
        factory = sandbox_factory(self._lock.spec, trusted=kinds == {"sim"})
        factory.janitor()
        sandboxes = OpenSandboxes(factory)
        stack.callback(sandboxes.stop_all)
        self._journal = stack.enter_context(
            self.loop.patiently(lambda: new_journal(self._layout, self._owner.worker))
        )
        logs = None
        with contextlib.suppress(OSError):
            logs = stack.enter_context(GradeLogs(self._layout.logs / f"{self._journal.name}.tar"))
        grader = format_of(self._lock.spec.benchmark).grader
        grader.prepare()
        return GradeContext(
            rows=read_rows(self._layout.dataset),
            sandboxes=sandboxes,
            cache=cached_grades(self._layout),
            logs=logs,
            timeout_s=self._lock.spec.grade_timeout_s,
            site=eval_site(self._lock.spec.cluster),
            grader=grader,
            worker=self._owner.worker,
            node=self._node,
            now=time.time,
        )

    def _grade_and_record(self, assignment: Assignment) -> Recorded:
        """Grade what is open of a run, in a slot's thread; it is on disk when this returns."""
        assert self._context is not None
        assert self._journal is not None
        journal, context = self._journal, self._context
        state = self._ledger.states.state_of(assignment.run.run_id)
        run = recorded_run(self._layout, state)
        kinds: list[PatchKind] = ["submitted"] if state.to_grade else []
        kinds += ["limit"] if limit_to_grade(state) else []
        if not kinds and state.grade_class is not None:
            # A worker that took this one for dead has graded it since it was handed out.
            return Recorded(ending=state.grade_class.value)
        classes = []
        for kind in kinds:
            record = grade_run(run, kind, state.grade_attempts + 1, context)
            if record.grade_class is not GradeClass.RESOLVED and self.loop.should_stop():
                # Slurm ends tests and patching with us: they did not fail by themselves.
                return Recorded()
            try:
                self.loop.patiently(partial(journal.append_grade, record))
            except DiskError as error:
                return Recorded(error=error)
            classes.append(record.grade_class)
        failed = GradeClass.GRADE_INFRA in classes
        if failed:
            self._ledger.note_failure(run.run_id)
        return Recorded(ending=classes[0].value, failed=failed)

    def _say_what_is_left(self) -> None:
        """Print what is ungraded and the command for it, if no other worker is at it."""
        self._ledger.refresh()
        ungraded = [r for r in self._runs if self._ledger.work_on(r.run_id) is Work.OPEN]
        missing = [r for r in self._runs if self._ledger.work_on(r.run_id) is Work.NOT_YET]
        if any(PREFIX + run.block_id in self._board.claimed() for run in ungraded):
            return
        root = self._layout.root
        if ungraded:
            named = "\n".join(f"  {run.run_id}" for run in ungraded[:10])
            say(
                f"{plural(len(ungraded), 'run is', 'runs are')} not graded yet:\n{named}\n"
                f"grade what is left: python -m pipeline.grade {root}"
            )
        if missing:
            say(
                f"{plural(len(missing), 'run has', 'runs have')} no result yet, so no grade; "
                "launch the sweep again to run what is missing"
            )


def grade_run(run: RunRecord, kind: PatchKind, attempt: int, context: GradeContext) -> GradeRecord:
    """Return the grade of one patch of a run, whatever happens.

    A failure on our side is a record of class `grade_infra`, for the caller to repeat.
    """
    patch = run.submission if kind == "submitted" else run.limit_patch
    sha256 = run.patch_sha256 if kind == "submitted" else run.limit_patch_sha256
    row = context.rows[run.instance_id]
    digest = None
    try:
        digest = context.sandboxes.factory.digest(row)
        tried = _grade(row, patch, sha256, digest, context, unkept=_unkept(run, kind))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        say(f"grading {run.run_id}:\n{traceback.format_exc()}")
        tried = Tried(grade=infra_failed(patch, reason=reason))
    grade = tried.grade
    _keep_log(run.run_id, kind, attempt, grade, context)
    return GradeRecord(
        run_id=run.run_id,
        instance_id=run.instance_id,
        attempt=attempt,
        grade_class=grade.grade_class,
        resolved=grade.resolved,
        score=_score_of(grade, scored=context.grader.scored),
        score_parts=json.dumps(dict(grade.score_parts)) if grade.score_parts else None,
        patch_exists=grade.patch_exists,
        patch_applied=grade.patch_applied,
        f2p_passed=grade.f2p_passed,
        f2p_total=grade.f2p_total,
        p2p_passed=grade.p2p_passed,
        p2p_total=grade.p2p_total,
        harness_version=context.grader.version(row),
        image_digest=digest,
        patch_sha256=sha256,
        patch_kind=kind,
        seconds=grade.seconds,
        report=json.dumps(dict(grade.report)),
        failure=grade.reason or None,
        timeouts=tried.timeouts,
        eval_environment=grade.environment,
        apply_command=grade.apply_command,
        test_exit_code=grade.test_exit_code,
        n_statuses=grade.n_statuses,
        test_settings=grade.test_settings,
        finished_at=context.now(),
        worker=context.worker,
        node=context.node,
    )


def _score_of(grade: Grade, *, scored: bool) -> float | None:
    """Return a grade's score; what never got as far as one, and is not our failure, has 0."""
    return 0.0 if scored and grade.score is None and grade.resolved is False else grade.score


def _unkept(run: RunRecord, kind: PatchKind) -> str:
    """Return why there is no patch, for a run that has none."""
    if kind == "submitted" and run.failure_class is FailureClass.SUBMITTED_OVERSIZE:
        return f"the submitted patch was too large to keep ({run.oversize_patch_bytes:,} bytes)"
    return "no patch"


def _grade(
    row: Mapping[str, Any],
    patch: str | None,
    sha256: str | None,
    digest: str | None,
    context: GradeContext,
    *,
    unkept: str,
) -> Tried:
    if patch is None or sha256 is None or not has_content(patch):
        return Tried(grade=without_patch(patch or None, reason=unkept))
    key = GradeKey(str(row["instance_id"]), sha256, digest, context.grader.version(row))
    known = context.cache.get(key)
    if known is not None:
        return Tried(grade=replace(known, seconds=0.0))
    timeouts = 0
    while True:
        start = partial(context.sandboxes.start, row, "grade")
        grade = context.grader.grade(row, patch, start, context.site, timeout_s=context.timeout_s)
        timeouts += grade.grade_class is GradeClass.GRADE_TIMEOUT
        if grade.grade_class is not GradeClass.GRADE_TIMEOUT or timeouts == N_TRIES:
            context.cache.add(key, grade)
            return Tried(grade=grade, timeouts=timeouts)


def _keep_log(
    run_id: str, kind: PatchKind, attempt: int, grade: Grade, context: GradeContext
) -> None:
    if context.logs is None or not grade.test_output:
        return
    with contextlib.suppress(OSError):
        name = grade_log_member(run_id, kind, attempt)
        context.logs.add(name, grade.test_output, now_s=context.now())


def _main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.worker.grade_job",
        description="Grade the finished runs of a launched sweep that have no grade yet.",
    )
    parser.add_argument("results", help="the results folder")
    parser.add_argument("--index", type=int, default=0, help="number of this worker")
    options = parser.parse_args(argv)
    main(options.results, options.index)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
