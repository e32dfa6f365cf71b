"""The rollout job: what Slurm or a local launcher starts, once for every worker.

Owns the frame of a worker's life: signal handlers before anything else, the heartbeat around all
of it, claims given back at the end, and the decision whether Slurm is asked to run the task again.
Jobs are told the results folder, the model and their index; the rest is in the lock.

    python -m pipeline.worker.rollout_job RESULTS --model MODEL --index N
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.host.claim_file import this_owner
from pipeline.host.environment import environment
from pipeline.host.log import say
from pipeline.host.slurm_job import SlurmJob, requeue, slurm_job
from pipeline.records.failure import NodeError
from pipeline.records.layout import Layout, file_name
from pipeline.records.lock import read_lock
from pipeline.records.usage import gpus_of_job, meter_usage
from pipeline.serving.gpu import gpu_sample
from pipeline.spec.model import ModelSpec
from pipeline.worker.claims import ClaimBoard
from pipeline.worker.loop import WorkLoop
from pipeline.worker.rollout_worker import RolloutWorker
from pipeline.worker.stopping import Stop, StopWatch, launcher_of


def main(results: str, model: str, index: int) -> dict[str, Any]:
    """Work on the blocks of `model` until none is left here; return what was done.

    Main thread only: signal handlers are installed, and restored at the end.

    Raises:
        LockError, FileNotFoundError: the folder holds no sweep.
        ValueError: the sweep has no such model.
        InfraError: the server, a sandbox or the disk is beyond what this worker can mend.
    """
    env = environment()
    layout = Layout(Path(results))
    stop = StopWatch(layout.drain_request, launcher=launcher_of(env))
    restore = stop.install()
    try:
        return _work(layout, model, index, env, stop)
    finally:
        restore()


def worker_name(role: str, model: str, index: int, job: SlurmJob | None) -> str:
    """Return the name of this worker attempt: journals and status files are called after it."""
    attempt = f"{job.job_id}-r{job.restarts}" if job else f"pid{os.getpid()}"
    return file_name("-".join(part for part in (role, model, str(index), attempt) if part))


def _work(
    layout: Layout, model: str, index: int, env: Mapping[str, str], stop: StopWatch
) -> dict[str, Any]:
    lock = read_lock(layout.lock)
    if model not in lock.spec.models:
        known = ", ".join(lock.spec.models)
        raise ValueError(f"no model {model!r} in {layout.lock}; it has {known}")
    if lock.changed_rules:
        raise ValueError(
            f"{layout.root} holds runs that this version of planprune would make otherwise:\n  "
            + "\n  ".join(lock.changed_rules)
            + f"\ncheck out commit {lock.commit} to finish it, or launch into a new folder"
        )
    job = slurm_job(env)
    owner = this_owner(worker_name("rollout", model, index, job), job.job_id if job else None)
    site = lock.spec.cluster
    board = ClaimBoard(layout, owner, stale_s=site.stale_s)
    board.start_heartbeat(site.heartbeat_s)
    gpus = max(lock.spec.models[model].n_gpus, gpus_of_job(env))
    try:
        require_gpus(lock.spec.models[model], env)
        with meter_usage(layout, owner.worker, gpus):
            worker = RolloutWorker(layout, lock, model, owner, board, stop, env)
            summary = worker.run()
    finally:
        board.release_all()
        board.stop_heartbeat()
    summary["requeued"] = requeue_task(job, worker.loop, layout, worker.has_open, site.max_requeues)
    say(str(summary))
    return summary


def require_gpus(model: ModelSpec, env: Mapping[str, str]) -> None:
    """Return if this job can have the GPUs that the model's server needs.

    Raises:
        NodeError: it was given none, and the driver shows none: vLLM would say so minutes later.
    """
    if model.kind == "vllm" and model.n_gpus and not gpus_of_job(env) and gpu_sample(env) is None:
        raise NodeError(
            f"this job has no GPU, and the server of {model.name} needs {model.n_gpus}: ask for "
            f"them with cluster.rollout.gres=gpu:{model.n_gpus}, or exclude this node"
        )


def requeue_task(
    job: SlurmJob | None,
    loop: WorkLoop,
    layout: Layout,
    has_open: Callable[[], bool],
    max_requeues: int,
) -> bool:
    """Ask Slurm to run this very task again if that is worthwhile; return whether it agreed.

    It is where time ran out on an attempt that achieved something, with work left and nobody
    asking for a drain. Slurm ends the job at once: whatever was held must be given back by now.
    """
    if job is None or loop.stopped_by is not Stop.TIME_LIMIT or loop.n_recorded == 0:
        return False
    if job.restarts >= max_requeues or layout.drain_request.exists() or not has_open():
        return False
    complaint = requeue(job)
    if complaint is not None:
        say(f"scontrol requeue {job.job_id}: {complaint}")
    return complaint is None


def _main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.worker.rollout_job",
        description="Work on the open runs of one model of a launched sweep.",
    )
    parser.add_argument("results", help="the results folder")
    parser.add_argument("--model", required=True, help="name of the model in the sweep")
    parser.add_argument("--index", type=int, default=0, help="number of this worker")
    options = parser.parse_args(argv)
    main(options.results, options.model, options.index)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
