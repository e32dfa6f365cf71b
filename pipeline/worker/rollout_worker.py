"""The life of one rollout worker: claims, server, slots, and an end that leaves nothing behind.

Owns the order of things: a first block is claimed before the server starts, since a worker with
nothing to do must not start one; runs are handed out while there is time for another; whatever
stops the worker, finished runs are published and claims given back. What a run is, is `execute`'s;
which run is next, `blocks`'; why to stop, `stopping`'s.
"""

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.host.slurm_job import job_end_unix_s, slurm_job
from pipeline.records.failure import DiskError, FailureClass, InfraError, NodeError, ServerError
from pipeline.records.journal import Journal, new_journal
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, read_rows
from pipeline.records.plan import PlannedRun, blocks_of, read_plan
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States
from pipeline.worker.blocks import Assignment, BlockQueue, Outlook
from pipeline.worker.busy import BusyMeter
from pipeline.worker.claims import ClaimBoard, Owner
from pipeline.worker.deadline import Deadline
from pipeline.worker.execute import Bench, counter_for, execute_run
from pipeline.worker.reporting import Counts, StatusFile
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from pipeline.worker.servers import ModelServer, start_server
from pipeline.worker.slots import Finished, Slots
from pipeline.worker.stopping import Stop, StopWatch

POLL_S = 0.25
LINGER_POLL_S = 1.0
ABORT_RESERVE_S = 30.0
"""Left before the job's end for publishing and teardown when runs have to be given up."""
ABORT_GRACE_S = 3.0
"""For runs in flight to notice that they are to stop, before their sandboxes are closed."""
DISK_PATIENCE_S = 900.0
"""How long a finished run waits in memory for a full disk."""
DISK_RETRY_S = 2.0


def donors_of(lock: Lock, runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """Return, for each run of a matched arm, the runs that set its budget.

    They are the other arm's runs of the same model and instance with other seeds.
    """
    by_place: dict[tuple[str, str, str], list[PlannedRun]] = {}
    for run in runs:
        by_place.setdefault((run.model, run.instance_id, run.arm), []).append(run)
    donors: dict[str, list[str]] = {}
    for run in runs:
        matched_to = lock.spec.arms[run.arm].matched_to
        if matched_to is not None:
            others = by_place.get((run.model, run.instance_id, matched_to), [])
            donors[run.run_id] = [o.run_id for o in others if o.seed != run.seed]
    return donors


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the main thread needs to know of a run that a slot has seen to its end."""

    failure_class: FailureClass | None = None
    """None: it was given up, and it is as if it had never started."""
    wall_s: float | None = None
    error: InfraError | None = None
    """Why it could not be recorded."""


class RolloutWorker:
    """One worker attempt. `run` is called once, in the main thread."""

    def __init__(
        self,
        layout: Layout,
        lock: Lock,
        model: str,
        owner: Owner,
        board: ClaimBoard,
        stop: StopWatch,
        env: Mapping[str, str],
    ) -> None:
        """Read the plan and what is done of it; nothing is started."""
        spec = lock.spec
        self._layout, self._lock, self._owner, self._stop = layout, lock, owner, stop
        self._model = spec.models[model]
        self._job = slurm_job(env)
        runs = read_plan(layout.plan)
        states = States(layout)
        self._queue = BlockQueue(
            layout,
            [block for block in blocks_of(runs) if block.model == model],
            board,
            states,
            max_attempts=spec.max_attempts,
            donors=donors_of(lock, runs),
        )
        self._deadline = Deadline(
            end_unix_s=job_end_unix_s(env),
            margin_s=float(spec.cluster.signal_delay_s),
            expected_wall_s=spec.agent.expected_wall_s,
            now_unix_s=time.time,
            wall_s=_wall_times(states, [run.run_id for run in runs if run.model == model]),
        )
        self._slots: Slots[Assignment, _Recorded] = Slots(
            spec.cluster.rollout.concurrency, self._run_and_record
        )
        stop.wake = self._slots.inbox
        self._status = StatusFile(layout, owner, role="rollout", model=model, job=self._job)
        self._counts = Counts()
        self._meter = BusyMeter()
        self._in_flight: dict[str, Assignment] = {}
        self._bench: Bench | None = None
        self._journal: Journal | None = None
        self._aborting = False
        self._fatal: InfraError | None = None
        self.stopped_by: Stop | None = None
        self.n_published_runs = 0

    def run(self) -> dict[str, Any]:
        """Work until nothing is left to do here.

        Raises:
            InfraError: something is broken that this worker cannot mend.
        """
        try:
            if not self._found_work():
                return self._summary()
            self._status.report("starting the server", self._counts, (), now=True)
            with contextlib.ExitStack() as stack:
                self._open_bench(stack)
                self._loop()
        finally:
            self._status.remove()
        if self._fatal is not None:
            raise self._fatal
        return self._summary()

    def has_open(self) -> bool:
        """Return whether runs of this model are still open, whoever works on them."""
        return self._queue.has_open()

    # --- before the server ---
    def _found_work(self) -> bool:
        """Claim a first block; wait for claims whose owners may be gone."""
        while self._stopping() is None and self._deadline.may_start():
            if self._queue.claim_one():
                return True
            if self._queue.outlook() is Outlook.NOTHING:
                return False
            self._status.report("waiting for a claim", self._counts, ())
            self._slots.wait(LINGER_POLL_S)
        if not self._deadline.may_start():
            sys.stderr.write(
                f"nothing started: {self._deadline.left_s:.0f} s are left and a run is expected to "
                f"take {self._deadline.run_s:.0f} s: raise time_min or lower expected_wall_s\n"
            )
        return False

    def _open_bench(self, stack: contextlib.ExitStack) -> None:
        """Start server and journal; they are closed in reverse order, come what may."""
        spec = self._lock.spec
        rows = read_rows(self._layout.dataset)
        factory = sandbox_factory(spec, trusted=self._model.kind == "sim")
        factory.janitor()
        sandboxes = OpenSandboxes(factory)
        server = start_server(
            self._model, log=self._layout.log(f"{self._owner.worker}.server"), rows=rows
        )
        stack.callback(server.stop)
        stack.callback(sandboxes.stop_all)
        self._journal = stack.enter_context(new_journal(self._layout, self._owner.worker))
        self._bench = Bench(
            lock=self._lock,
            rows=rows,
            model=self._model,
            server=server,
            sandboxes=sandboxes,
            meter=self._meter,
            counter=counter_for(self._model, server),
            worker=self._owner.worker,
            node=self._job.node if self._job and self._job.node else self._owner.host,
            now=time.time,
            should_stop=lambda: self._aborting or self._stop.terminated,
        )

    # --- the loop ---
    def _loop(self) -> None:
        while True:
            reason = self._stopping()
            if reason is None:
                self._mend(self._need().server)
                self._fill()
            else:
                self._queue.give_back_waiting()
            if self._slots.n_busy == 0 and (reason is not None or self._is_done()):
                return
            if self._must_abort(reason):
                self._abort()
                return
            self._report(reason)
            self._take(self._slots.wait(POLL_S if self._slots.n_busy else LINGER_POLL_S))

    def _fill(self) -> None:
        """Hand runs to free slots while there is time for another."""
        while self._slots.has_free and self._deadline.may_start():
            try:
                assignment = self._queue.next()
            except OSError:
                # A claim could not be written: no space for a while. What is held goes on.
                return
            if assignment is None:
                return
            self._in_flight[assignment.run.run_id] = assignment
            self._slots.start(assignment)

    def _is_done(self) -> bool:
        """Return whether an idle worker has nothing to wait for."""
        return not self._deadline.may_start() or self._queue.outlook() is Outlook.NOTHING

    def _stopping(self) -> Stop | None:
        if self._fatal is not None:
            return Stop.TERMINATED
        self.stopped_by = self._stop.reason() or self.stopped_by
        if self.stopped_by is Stop.TIME_LIMIT and self._job and self._deadline.end_unix_s is None:
            # Slurm could not say when the job ends, but the signal is sent so long before.
            self._deadline.end_unix_s = time.time() + self._deadline.margin_s
        return self.stopped_by

    def _must_abort(self, reason: Stop | None) -> bool:
        return (reason is not None and reason.is_abrupt) or self._deadline.must_abort(
            ABORT_RESERVE_S
        )

    def _mend(self, server: ModelServer) -> None:
        """Start a server again that has ended; its runs fail as infrastructure meanwhile."""
        if server.alive():
            return
        try:
            server.restart()
        except ServerError as error:
            self._fatal = error

    def _abort(self) -> None:
        """Give up what is in flight; what finishes within the grace still counts."""
        self._aborting = True
        deadline_s = time.monotonic() + ABORT_GRACE_S
        while self._slots.n_busy and time.monotonic() < deadline_s:
            self._take(self._slots.wait(POLL_S))
        self._need().sandboxes.stop_all()
        self._need().server.stop()
        deadline_s = time.monotonic() + ABORT_GRACE_S
        while self._slots.n_busy and time.monotonic() < deadline_s:
            self._take(self._slots.wait(POLL_S))
        for assignment in list(self._in_flight.values()):
            self._queue.dropped(assignment)

    def _take(self, event: Finished[Assignment, _Recorded] | None) -> None:
        """Account for a run that ended."""
        if event is None:
            return
        assignment = event.item
        del self._in_flight[assignment.run.run_id]
        recorded = event.result or _Recorded(error=NodeError("a slot died; its log says of what"))
        if recorded.failure_class is None:
            self._fatal = recorded.error or self._fatal
            self._queue.dropped(assignment)
            return
        failed = recorded.failure_class.is_infra
        self._counts.note(recorded.failure_class.value, failed=failed)
        if not failed:
            self.n_published_runs += 1
            if recorded.wall_s is not None:
                self._deadline.wall_s.append(recorded.wall_s)
        self._queue.finished(assignment, valid=not failed)

    def _report(self, reason: Stop | None) -> None:
        self._counts.tokens = self._meter.tokens
        phase = "running" if reason is None else f"stopping: {reason}"
        self._status.report(phase, self._counts, list(self._in_flight))

    def _summary(self) -> dict[str, Any]:
        return {
            "worker": self._owner.worker,
            "finished": self._counts.finished,
            "infra_failed": self._counts.infra_failed,
            "blocks_published": self._queue.n_published,
            "stopped_by": self.stopped_by.value if self.stopped_by else None,
        }

    # --- in a slot's thread ---
    def _run_and_record(self, assignment: Assignment) -> _Recorded:
        bench = self._need()
        record = execute_run(assignment.run, assignment.attempt, bench)
        if record.failure_class.is_infra and bench.should_stop():
            # We pulled the server and the sandbox from under it: nothing is to be learned.
            return _Recorded()
        try:
            self._append(record)
        except DiskError as error:
            return _Recorded(error=error)
        return _Recorded(failure_class=record.failure_class, wall_s=record.wall_s)

    def _append(self, record: RunRecord) -> None:
        """Put the record on disk, waiting for a full disk to be freed.

        Raises:
            DiskError: it was not freed in time.
        """
        assert self._journal is not None
        give_up_s = time.monotonic() + DISK_PATIENCE_S
        while True:
            try:
                self._journal.append_run(record)
            except DiskError as error:
                if time.monotonic() > give_up_s or self._need().should_stop():
                    raise
                sys.stderr.write(f"{error}\n")
                time.sleep(DISK_RETRY_S)
            else:
                return

    def _need(self) -> Bench:
        assert self._bench is not None, "the server has not been started"
        return self._bench


def _wall_times(states: States, run_ids: Sequence[str]) -> list[float]:
    """Return how long the runs took that have a result."""
    known = states.refresh()
    done = (known[run_id] for run_id in run_ids if run_id in known)
    return [state.wall_s for state in done if state.wall_s is not None and not state.to_run]
