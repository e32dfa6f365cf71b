"""Time from sbatch to the first model call, beyond the server's own start.

    python benchmarks/slurm_overhead.py [--times 3] [override ...]

Needs a Slurm (slurm/test_cluster.sh up ROOT; export SLURM_CONF=ROOT/etc/slurm.conf). Launches one
run of the demo on it with the simulated agent, and splits the time from the call of sbatch: until
Slurm has started the job (Slurm's, to the second), until the worker starts its server (ours:
interpreter, imports, plan, claim), while the server starts (the server's), and until the first call
(ours again: sandbox, agent). The floor is `srun`'s own time for `python -c pass`, in the same run.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from pipeline import launch
from pipeline.compact import compact_folder
from pipeline.host.files import read_json
from pipeline.planning.submit import submissions
from pipeline.records.layout import Layout

ONE_RUN = (
    "+sweep=demo",
    "cluster=slurm",
    "seeds=[0]",
    "instances.ids=[toy__ledger-1]",
    "~arms.no_plan",
    "~arms.sham_cleanup",
    "~arms.plan_prune",
    "agent.step_limit=2",
    "grade=false",
    "analyze=false",
    "cluster.rollout={n_tasks: 1, concurrency: 1, cpus: 1, time_min: 10}",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    for _ in range(options.times):
        folder = Path(tempfile.mkdtemp(prefix="slurm-overhead-"))
        try:
            one(folder, options.overrides)
        finally:
            shutil.rmtree(folder)


def one(folder: Path, overrides: list[str]) -> None:
    began = time.time()
    subprocess.run(["srun", "--time=5", sys.executable, "-c", "pass"], check=True)
    floor_s = time.time() - began
    layout = Layout(folder / "sweep")
    assert launch.main([*ONE_RUN, f"results={layout.root}", *overrides]) == 0
    (script,) = layout.logs.rglob("*submission.sh")
    sbatch_at = script.stat().st_mtime  # written just before sbatch reads it
    (job,) = (job["job_id"] for record in submissions(layout) for job in record["jobs"])
    began_at = watched(layout, job)
    server_at, work_at = began_at["starting the server"], began_at["working"]
    text = subprocess.run(
        ["scontrol", "show", "job", job], check=True, capture_output=True, text=True
    ).stdout
    started = next(w for w in text.split() if w.startswith("StartTime=")).partition("=")[2]
    job_at = time.mktime(time.strptime(started, "%Y-%m-%dT%H:%M:%S"))
    compact_folder(layout.root)
    (call_at,) = pq.read_table(
        layout.table("calls"), columns=["started_at"], filters=[("call_index", "=", 0)]
    )["started_at"].to_pylist()
    first = seconds(call_at)
    print(
        f"sbatch to first call {first - sbatch_at:.2f} s: Slurm about {job_at - sbatch_at:.0f} s, "
        f"worker's start {server_at - max(job_at, sbatch_at):.2f} s, server's own start "
        f"{work_at - server_at:.2f} s, sandbox and agent {first - work_at:.2f} s; "
        f"beyond the server's start {first - sbatch_at - (work_at - server_at):.2f} s "
        f"(bare srun of the interpreter: {floor_s:.2f} s)"
    )


def seconds(stamp: object) -> float:
    return stamp.timestamp() if hasattr(stamp, "timestamp") else float(stamp)  # type: ignore[arg-type]


def watched(layout: Layout, job: str) -> dict[str, float]:
    """Wait for the job's end; return when its worker began each phase of its life."""
    began_at: dict[str, float] = {}
    while True:
        for path in layout.status.glob("*.json"):
            try:
                report = read_json(path)
            except FileNotFoundError:
                continue
            began_at.setdefault(report["phase"], report["updated_at"])
        asked = subprocess.run(
            ["squeue", "--noheader", "--jobs", job], check=False, capture_output=True, text=True
        )
        if not asked.stdout.strip():
            return began_at
        time.sleep(0.02)


if __name__ == "__main__":
    main()
