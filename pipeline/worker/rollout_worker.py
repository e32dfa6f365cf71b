"""One rollout worker: a model server, sandboxes, and runs in slots.

Owns the order of things: a first block is claimed before the server starts, since a worker with
nothing to do must not start one, and at the end nothing is left, neither a process nor a claim.
What a run is, is `execute`'s; which run is next, `blocks`'; the loop itself, `loop`'s.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.host.claim_file import Owner
from pipeline.host.slurm_job import job_end_unix_s, slurm_job
from pipeline.pruners.pool import PrunerPool
from pipeline.records.cut_short import cut_short, note_cut_short
from pipeline.records.failure import DiskError, InfraError
from pipeline.records.journal import Journal, new_journal
from pipeline.records.layout import Layout
from pipeline.records.lock import Lock, read_rows
from pipeline.records.plan import PlannedRun, blocks_of, read_plan
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States
from pipeline.serving.server import ServerStoppedError
from pipeline.worker.blocks import Assignment, BlockQueue
from pipeline.worker.budget import GpuBudget
from pipeline.worker.busy import BusyMeter
from pipeline.worker.claims import ClaimBoard
from pipeline.worker.deadline import Deadline
from pipeline.worker.donors import Donors
from pipeline.worker.execute import WorkerContext, counter_for, execute_run
from pipeline.worker.forks import ForkSources, fork_sources
from pipeline.worker.ledgers import RolloutLedger
from pipeline.worker.loop import Recorded, WorkLoop
from pipeline.worker.refusals import Refusals, RefusedInARowError
from pipeline.worker.reporting import StatusFile
from pipeline.worker.sampling import ServerSampler
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from pipeline.worker.server_fit import require_fit
from pipeline.worker.servers import Place, start_server
from pipeline.worker.stopping import StopWatch


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
        self._layout, self._lock, self._owner = layout, lock, owner
        self._model = spec.models[model]
        job = slurm_job(env)
        self._env, self._stop = env, stop
        self._node = job.node if job and job.node else owner.host
        self._status = StatusFile(layout, owner, role="rollout", model=model, job=job)
        self._meter = BusyMeter()
        self._context: WorkerContext | None = None
        self._journal: Journal | None = None
        self._sampler: ServerSampler | None = None
        self._refusals = Refusals(spec.max_refusals_in_a_row)
        runs = read_plan(layout.plan)
        states = States(layout)
        cut_short_s = cut_short(layout)
        donors = donors_of(lock, runs)
        self._donors = Donors(layout, donors)
        begins_with = fork_sources(lock, runs)
        self._forks = ForkSources(layout, begins_with)
        self._deadline = deadline = Deadline(
            end_unix_s=job_end_unix_s(env, limit_s=spec.cluster.rollout.time_min * 60),
            margin_s=float(spec.cluster.signal_delay_s),
            expected_wall_s=spec.expected_wall_s,
            now_unix_s=time.time,
            setup_s=self._model.serve.expected_start_s if self._model.kind == "vllm" else 0.0,
            wall_s=_wall_times(states, [run.run_id for run in runs if run.model == model]),
        )
        self._queue = BlockQueue(
            [block for block in blocks_of(runs) if block.model == model],
            board,
            RolloutLedger(states),
            max_attempts=spec.max_attempts,
            donors=donors,
            begins_with=begins_with,
            hopeless=lambda run_id: deadline.is_hopeless(cut_short_s.get(run_id)),
        )
        self.loop = WorkLoop(
            self._queue,
            deadline,
            stop,
            self._status,
            concurrency=spec.cluster.rollout.concurrency,
            work=self._run_and_record,
            has_room=lambda: self._sampler is None or self._sampler.has_room(),
            cut_short=lambda had_s: note_cut_short(layout, owner.worker, had_s),
        )
        stop.budget = GpuBudget(layout, spec.max_gpu_hours, lambda: deadline.run_s).is_spent

    def run(self) -> dict[str, Any]:
        """Work until nothing is left to do here; return what was done.

        Raises:
            InfraError: something is broken that this worker cannot mend.
        """
        try:
            if self.loop.found_work():
                self._status.report("starting the server", self.loop.counts, ())
                # Being asked to stop while the server loads, for an hour perhaps, is no failure.
                stopped = contextlib.suppress(ServerStoppedError)
                with contextlib.ExitStack() as stack, stopped:
                    self._context = self._open(stack)
                    self._deadline.setup_s = 0.0
                    self.loop.run(self._tend, self._pull_plug)
                    self._journal_all(self._refusals.rest())
        except InfraError as error:
            self._status.leave(error, self.loop.counts)
            raise
        finally:
            self._status.remove()
        return {
            "worker": self._owner.worker,
            "finished": self.loop.counts.finished,
            "infra_failed": self.loop.counts.infra_failed,
            "blocks_published": self._queue.n_published,
            "stopped_by": self.loop.stopped_by.value if self.loop.stopped_by else None,
        }

    def has_open(self) -> bool:
        """Return whether runs of this model are still open, whoever works on them."""
        return self._queue.has_open()

    def _open(self, stack: contextlib.ExitStack) -> WorkerContext:
        """Return what runs need, started; it is closed in reverse order, come what may."""
        rows = read_rows(self._layout.dataset)
        factory = sandbox_factory(self._lock.spec, trusted=self._model.kind == "sim")
        factory.janitor()
        sandboxes = OpenSandboxes(factory)
        scratch = self._lock.spec.cluster.scratch
        place = Place(
            log=self._layout.log(f"{self._owner.worker}.server"),
            env=self._env,
            node=self._node,
            scratch=Path(scratch) if scratch else None,
            should_stop=lambda: self.loop.should_stop() or self._stop.reason() is not None,
        )
        # Before the server: a model that is not there must not cost hours of a GPU.
        pruners = PrunerPool(self._lock.spec.arms.values())
        server = start_server(self._model, place, rows)
        stack.callback(server.stop)
        require_fit(self._lock.spec, self._model, server, self._env)
        stack.callback(sandboxes.stop_all)
        self._journal = stack.enter_context(
            self.loop.patiently(lambda: new_journal(self._layout, self._owner.worker))
        )
        self._sampler = stack.enter_context(
            ServerSampler(
                server, self._journal, worker=self._owner.worker, env=self._env, now=time.time
            )
        )
        return WorkerContext(
            lock=self._lock,
            rows=rows,
            model=self._model,
            server=server,
            sandboxes=sandboxes,
            meter=self._meter,
            counter=counter_for(self._model, server),
            worker=self._owner.worker,
            node=self._node,
            now=time.time,
            should_stop=self.loop.should_stop,
            pruners=pruners,
            donors=self._donors,
            forks=self._forks,
        )

    def _tend(self) -> None:
        """Start a server again that has ended; its runs fail as infrastructure meanwhile."""
        self.loop.counts.tokens = self._meter.tokens
        assert self._context is not None
        if not self._context.server.alive():
            self._context.server.restart()

    def _pull_plug(self) -> None:
        assert self._context is not None
        self._context.sandboxes.stop_all()
        self._context.server.stop()

    def _run_and_record(self, assignment: Assignment) -> Recorded:
        """Run in a slot's thread; the record is on disk when this returns."""
        assert self._context is not None
        record = execute_run(assignment.run, assignment.attempt, self._context)
        failed = record.failure_class.is_infra
        if self._stop.terminated or (failed and self.loop.should_stop()):
            # Slurm's SIGTERM reaches the commands in sandboxes too, or we pulled the server from
            # under the run: nothing is to be learned from how it ended.
            return Recorded()
        try:
            self._journal_all(self._refusals.take(record))
        except (DiskError, RefusedInARowError) as error:
            return Recorded(error=error)
        return Recorded(ending=record.failure_class.value, failed=failed, wall_s=record.wall_s)

    def _journal_all(self, records: Sequence[RunRecord]) -> None:
        assert self._journal is not None
        for record in records:
            self.loop.patiently(partial(self._journal.append_run, record))


def donors_of(lock: Lock, runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """Return, for each run of a matched arm, the runs that set its budget.

    They are the other arm's runs of the same model, agent and instance with other seeds.
    """
    by_place: dict[tuple[str, str, str, str], list[PlannedRun]] = {}
    for run in runs:
        by_place.setdefault((run.model, run.agent, run.instance_id, run.arm), []).append(run)
    donors: dict[str, list[str]] = {}
    for run in runs:
        matched_to = lock.spec.arms[run.arm].matched_to
        if matched_to is not None:
            others = by_place.get((run.model, run.agent, run.instance_id, matched_to), [])
            donors[run.run_id] = [o.run_id for o in others if o.seed != run.seed]
    return donors


def _wall_times(states: States, run_ids: Sequence[str]) -> list[float]:
    """Return how long the runs took that have a result."""
    known = states.refresh()
    done = (known[run_id] for run_id in run_ids if run_id in known)
    return [state.wall_s for state in done if state.wall_s is not None and state.has_result]
