"""18,000 runs over 36 workers that are killed at random: is anything lost, or counted twice?

    python benchmarks/worker_kills.py [--runs 18000] [--workers 36] [--slots 16]
        [--run-s 12] [--kill-every-s 4]

Plan, claims, heartbeats, the workers' loop, journals, states and compaction are the real ones; only
what a run does is not: it sleeps for about `--run-s` and leaves an empty record. A killed worker
is replaced by another with a name of its own, as a requeued job would be.

Two figures of overhead. *CPU a run* is all that workers spend (claiming, reading journals,
writing, dying, starting), and what that is of a real run's share of its server (30 minutes in 16
slots). *Slots idle* is the part of all slots' time in which no run slept while there were runs for
all of them; with 36 workers on two cores it has their contention for the cores in it, so that short
runs show it larger than it is. What kills threw away is apart: it is the killer's doing.
"""

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pyarrow.parquet as pq

from pipeline.host.claim_file import this_owner
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import write_folder
from pipeline.planning.prepare import Prepared, prepare
from pipeline.records.failure import FailureClass
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun, blocks_of, read_plan
from pipeline.records.run_record import RunRecord
from pipeline.records.states import States
from pipeline.records.tables import compact
from pipeline.worker.blocks import Assignment, BlockQueue
from pipeline.worker.claims import ClaimBoard
from pipeline.worker.deadline import Deadline
from pipeline.worker.ledgers import RolloutLedger
from pipeline.worker.loop import Recorded, WorkLoop
from pipeline.worker.reporting import StatusFile
from pipeline.worker.stopping import StopWatch

REAL_RUN_S = 1800.0
REAL_SLOTS = 16
RUNS_A_SEED = 12 * 4


def plan(folder: Path, n_runs: int) -> Prepared:
    """Write a sweep of at least `n_runs` runs and return it."""
    seeds = list(range(-(-n_runs // RUNS_A_SEED)))
    words = ["+sweep=demo", f"seeds={seeds}", f"results={folder}", "max_runs=1000000"]
    sweep = prepare(sweep_spec([word.replace(" ", "") for word in words]))
    write_folder(Layout(folder), sweep, "new")
    return sweep


def record(run: PlannedRun, attempt: int, worker: str, started_at: float) -> RunRecord:
    now = time.time()
    return RunRecord(
        run_id=run.run_id,
        sweep="demo",
        benchmark=run.benchmark,
        instance_id=run.instance_id,
        repo=run.repo,
        model=run.model,
        agent=run.agent,
        arm=run.arm,
        seed=run.seed,
        block_id=run.block_id,
        attempt=attempt,
        exit_status="Submitted",
        failure_class=FailureClass.OK,
        patch=run.run_id,
        token_counter="none",
        evidence=run.evidence,
        started_at=started_at,
        finished_at=now,
        wall_s=now - started_at,
        worker=worker,
        node="bench",
    )


Marks = Sequence[float]
"""Of each slot of a worker, the monotonic time at which its run began; 0 while it has none."""


def work(folder: Path, name: str, run_s: float, slots: int, marks: MutableSequence[float]) -> None:
    """Be one worker, until nothing is left or it is killed."""
    layout = Layout(folder)
    owner = this_owner(name)
    stop = StopWatch(layout.drain_request)
    stop.install()
    board = ClaimBoard(layout, owner, stale_s=30)
    board.start_heartbeat(2.0)
    queue = BlockQueue(
        blocks_of(read_plan(layout.plan)), board, RolloutLedger(States(layout)), max_attempts=3
    )
    journal = new_journal(layout, name)
    rng = random.Random(name)
    free: SimpleQueue[int] = SimpleQueue()
    for slot in range(slots):
        free.put(slot)

    def sleep_and_record(assignment: Assignment) -> Recorded:
        started_at = time.time()
        slot = free.get()
        marks[slot] = time.monotonic()
        time.sleep(run_s * rng.uniform(0.5, 1.5))
        marks[slot] = 0.0
        free.put(slot)
        journal.append_run(record(assignment.run, assignment.attempt, name, started_at))
        return Recorded(ending="ok", wall_s=run_s)

    loop = WorkLoop(
        queue,
        Deadline(end_unix_s=None, margin_s=0, expected_wall_s=run_s, now_unix_s=time.time),
        stop,
        StatusFile(layout, owner, role="rollout", model="sim", job=None),
        concurrency=slots,
        work=sleep_and_record,
    )
    if loop.found_work():
        loop.run(lambda: None, lambda: None)
    board.release_all()
    board.stop_heartbeat()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=18_000)
    parser.add_argument("--workers", type=int, default=36)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--run-s", type=float, default=12.0)
    parser.add_argument("--kill-every-s", type=float, default=4.0)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="worker-kills-"))
    try:
        measure(root / "sweep", options)
    finally:
        shutil.rmtree(root)


def measure(folder: Path, options: argparse.Namespace) -> None:
    planned = {run.run_id for run in plan(folder, options.runs).runs}
    began = time.monotonic()
    n_started, n_killed, busy = work_off(folder, planned, options)
    elapsed = time.monotonic() - began
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = cpu.ru_utime + cpu.ru_stime
    report = compact(Layout(folder))
    rows = pq.read_table(Layout(folder).table("runs"), columns=["run_id"])["run_id"].to_pylist()
    print(f"{len(planned):,} runs, {n_started} workers started, {n_killed} killed, {elapsed:.0f} s")
    n_lost, n_twice = len(planned - set(rows)), len(rows) - len(set(rows))
    print(f"lost: {n_lost}")
    print(f"counted twice: {n_twice}")
    print(f"records that were superseded (two owners for a while): {report.n_superseded}")
    real_s = REAL_RUN_S / REAL_SLOTS
    print(
        f"CPU a run: {1000 * cpu_s / len(planned):.1f} ms, "
        f"{cpu_s / len(planned) / real_s:.3%} of a real run's {real_s:.0f} s of a server"
    )
    slept, thrown = busy.slept_s / busy.all_s, busy.thrown_s / busy.all_s
    print(f"slots: {slept:.1%} slept, {thrown:.1%} thrown away, {1 - slept - thrown:.1%} idle")
    files = sum(1 for _ in folder.rglob("*"))
    print(f"files: {files:,} ({os.cpu_count()} cores)")
    if n_lost or n_twice:
        raise SystemExit("runs were lost or counted twice")


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Seconds of all slots together."""

    all_s: float
    slept_s: float
    thrown_s: float


def work_off(folder: Path, planned: set[str], options: argparse.Namespace) -> tuple[int, int, Busy]:
    """Keep workers going and kill some until every run is done.

    Returns how many were started and killed, and what slots did while there was work for all.
    """
    context, rng = multiprocessing.get_context("fork"), random.Random(0)
    living: list[tuple[multiprocessing.process.BaseProcess, Marks]] = []
    n_started = n_killed = 0
    thrown_s = 0.0
    busy: Busy | None = None
    states = States(Layout(folder))
    began_at_s = kill_at_s = look_at_s = time.monotonic()
    open_runs = len(planned)
    n_slots = options.workers * options.slots
    while open_runs:
        living = [(process, marks) for process, marks in living if process.is_alive()]
        while len(living) < min(options.workers, open_runs):
            marks = context.Array("d", options.slots, lock=False)
            words = (folder, f"w{n_started}", options.run_s, options.slots, marks)
            process = context.Process(target=work, args=words)
            process.start()
            living.append((process, marks))
            n_started += 1
        time.sleep(0.05)
        now_s = time.monotonic()
        if now_s >= kill_at_s + options.kill_every_s:
            kill_at_s = now_s
            process, marks = rng.choice(living)
            process.kill()
            n_killed += 1
            thrown_s += sum(slept_in(marks, now_s))
        if now_s >= look_at_s + 2:
            look_at_s = now_s
            known = states.refresh()
            open_runs = sum(run_id not in known or known[run_id].to_run for run_id in planned)
            if busy is None and open_runs < 2 * n_slots:
                in_flight_s = sum(sum(slept_in(marks, now_s)) for _, marks in living)
                busy = Busy(
                    all_s=(now_s - began_at_s) * n_slots,
                    slept_s=(len(planned) - open_runs) * options.run_s + in_flight_s,
                    thrown_s=thrown_s,
                )
    for process, _ in living:
        process.join()
    assert busy is not None
    return n_started, n_killed, busy


def slept_in(marks: Marks, now_s: float) -> list[float]:
    """Return for how long the runs of a worker have been in flight."""
    return [now_s - began_s for began_s in marks if began_s]


if __name__ == "__main__":
    main()
