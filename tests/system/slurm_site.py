"""A Slurm of our own for the system tests, and the small sweep that is run on it.

One cluster serves a whole test session. The sweep has four runs of some seconds in two blocks, so
that there is a middle to disturb; what must be equal afterwards is in `outcome_of`.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from pipeline import launch
from pipeline.compact import compact_folder
from pipeline.host.files import read_json
from pipeline.host.process import run_command
from pipeline.host.slurm import JobState, job_states
from pipeline.planning.situation import Situation, situation_of
from pipeline.planning.submit import submissions
from pipeline.records.frames import FrameKind
from pipeline.records.journal import scan
from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock
from pipeline.records.plan import read_plan
from pipeline.records.states import States
from pipeline.worker import grade_job
from tests.words import words_of

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "slurm" / "test_cluster.sh"
NODES = ("cpu1", "cpu2", "gpu1", "gpu2")
IN_ORDER = frozenset({"idle", "mixed", "allocated", "completing"})
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
REMEDY = "install it with tests/system/install_slurm.sh (as root)"
N_RUNS = 4
SWEEP = (
    "+sweep=demo",
    "seeds=[0]",
    "instances.ids=[toy__ledger-1,toy__tabular-1]",
    "~arms.no_plan",
    "~arms.sham_cleanup",
    "agent.expected_wall_s=5",
    "grade_timeout_s=60",
    "model.sim.latency_ms=80",
    "analyze=false",
)
ON_SLURM = (
    "cluster=slurm",
    "cluster.rollout.n_tasks=2",
    "cluster.rollout.concurrency=1",
    "cluster.rollout.cpus=1",
    "cluster.rollout.time_min=20",
    "cluster.rollout.partition=medium",
    "cluster.grading.n_tasks=1",
    "cluster.grading.cpus=1",
    "cluster.grading.time_min=20",
    "cluster.grading.partition=medium",
    "cluster.heartbeat_s=1",
    "cluster.stale_s=15",
    "cluster.signal_delay_s=20",
)
Outcome = Mapping[str, tuple[object, ...]]


def slurm_here() -> bool:
    """Return whether this machine can run the test cluster."""
    return os.getuid() == 0 and all(shutil.which(program) for program in PROGRAMS)


class Cluster:
    """The test cluster: two CPU nodes, two "GPU" nodes, all on this machine."""

    def __init__(self, root: Path, *, accounting: bool = False) -> None:
        self.root = root
        self._options = ["--accounting"] if accounting else []
        self.conf = root / "etc" / "slurm.conf"

    def up(self) -> None:
        self._script("up", str(self.root), *self._options)

    def down(self) -> None:
        self.run("scancel", "--full", "--user=root")
        self._script("down", str(self.root))

    def mend(self) -> None:
        """Return once every node is up again, whatever was done to it."""
        for node in NODES:
            if not psutil.pid_exists(self.slurmd_pid(node)):
                self.start_node(node)
        wait_for(lambda: not self.broken_nodes(), "all nodes are up")

    def broken_nodes(self) -> list[str]:
        """Return the nodes that take no jobs."""
        shown = self.run("sinfo", "--Node", "--noheader", "--format=%N %T").splitlines()
        return sorted({line for line in shown if line.split()[1] not in IN_ORDER})

    def start_node(self, name: str) -> None:
        self._script("node", str(self.root), name)

    def run(self, *argv: str) -> str:
        """Return what a Slurm command prints, right or wrong."""
        return run_command(argv, timeout_s=60).text

    def queue(self, *options: str) -> list[str]:
        """Return the jobs in the queue as `ID STATE`."""
        return self.run("squeue", "--noheader", "--array", "--format=%i %T", *options).splitlines()

    def slurmd_pid(self, node: str) -> int:
        return int((self.root / "run" / f"slurmd-{node}.pid").read_text())

    def _script(self, *words: str) -> None:
        done = run_command([str(SCRIPT), *words], timeout_s=60)
        if done.returncode != 0:
            raise RuntimeError(f"{SCRIPT.name} {' '.join(words)}:\n{done.text}")


def wait_for(condition: Callable[[], bool], what: str, at_most_s: float = 120) -> None:
    """Return once `condition` holds."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError(f"waited in vain until {what}")


class Sweep:
    """The small sweep in one folder, launched on the cluster as often as it takes."""

    def __init__(
        self, cluster: Cluster, folder: Path, *overrides: str, grade_here: bool = False
    ) -> None:
        """Prepare a sweep in `folder`.

        Args:
            grade_here: grade in this process at the end, which is quicker than a job.
        """
        self.cluster = cluster
        self.grade_here = grade_here
        self.layout = Layout(folder / "sweep")
        self.scratch = folder / "scratch"
        where = (f"results={self.layout.root}", f"cluster.scratch={self.scratch}")
        grading = ["grade=false"] if grade_here else []
        self.words = words_of(*SWEEP, *ON_SLURM, *where, *grading, *overrides)

    def launch(self, *overrides: str) -> int:
        """Go through the door; return its exit status."""
        return launch.main(words_of(*self.words, *overrides))

    def launch_here(self, *overrides: str) -> Outcome:
        """Do all of it on this machine, without Slurm, and return what came out."""
        words = [word for word in self.words if word != "cluster=slurm"]
        quick = ("cluster=local", "cluster.rollout.concurrency=4", "model.sim.latency_ms=0")
        assert launch.main(words_of(*words, *quick, *overrides)) == 0
        return outcome_of(self.layout)

    def finish(self) -> Outcome:
        """Launch until every run has its result, grade, and return what came out."""
        for _ in range(4):
            self.wait_ended()
            if self.n_open() == 0:
                break
            assert self.launch() == 0
        assert self.n_open() == 0
        if self.grade_here:
            grade_job.main(str(self.layout.root), 9)
        assert self.launch() == 0, "a launch with nothing open makes the tables"
        return outcome_of(self.layout)

    def n_open(self) -> int:
        """Return how many runs have no result, or no grade if Slurm is to grade."""
        states = States(self.layout)
        states.refresh()
        known = [states.state_of(run.run_id) for run in read_plan(self.layout.plan)]
        return sum(s.to_run or (s.resolved is None and not self.grade_here) for s in known)

    def in_flight(self) -> list[str]:
        """Return the runs that workers say they are at."""
        found: list[str] = []
        for path in self.layout.status.glob("*.json"):
            try:
                found += read_json(path)["in_flight"]
            except FileNotFoundError:
                continue
        return found

    def journaled(self) -> list[str]:
        """Return the run id of every run record, however often."""
        return [
            frame.head["run_id"]
            for path in self.layout.journal_paths()
            for frame in scan(path).frames
            if frame.kind == FrameKind.RUN
        ]

    def wait_for_a_middle(self, n_finished: int = 1) -> None:
        """Return once some runs are finished, and one is in flight."""
        wait_for(
            lambda: len(self.journaled()) >= n_finished and bool(self.in_flight()),
            f"{n_finished} runs are finished and one is in flight",
        )
        assert len(set(self.journaled())) < N_RUNS

    def situation(self) -> Situation:
        """Return what `status` would show now."""
        plan, lock = read_plan(self.layout.plan), read_lock(self.layout.lock)
        return situation_of(self.layout, lock, plan, States(self.layout))

    def rollout_jobs(self) -> list[str]:
        return self._jobs("rollout")

    def has_ended(self) -> bool:
        """Return whether none of the sweep's jobs is queued or running; others' may be."""
        return all(state is JobState.ENDED for state in job_states(self._jobs()).values())

    def wait_ended(self) -> None:
        """Return once none of the sweep's jobs is queued or running."""
        wait_for(self.has_ended, "the sweep's jobs have ended")

    def clear(self) -> None:
        """End its jobs, then whatever is left of them, however the test went."""
        if not self.has_ended():
            self.cluster.run("scancel", "--full", *self._jobs())
            wait_for(self.has_ended, "the cancelled jobs have ended", 60)
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                kill(process)

    def _jobs(self, *roles: str) -> list[str]:
        return [
            job["job_id"]
            for record in submissions(self.layout)
            for job in record["jobs"]
            if not roles or job["role"] in roles
        ]

    def sandboxes(self) -> list[Path]:
        """Return the working copies that runs have at the moment."""
        walked = os.walk(self.scratch)  # folders may vanish meanwhile
        return [Path(folder, "testbed") for folder, names, _ in walked if "testbed" in names]

    def attempts(self) -> list[str]:
        """Return the names of the worker attempts that wrote a journal."""
        return sorted(path.stem for path in self.layout.journal_paths())

    def logs(self) -> str:
        """Return everything that the jobs printed."""
        return "".join(p.read_text() for p in sorted(self.layout.logs.rglob("*.out")))

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that name this sweep's folders."""
        words = (str(self.layout.root), str(self.scratch))
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if process.pid != os.getpid() and any(word in line for word in words):
                found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Return the processes of the workers themselves."""
        return [
            p for p in self.processes() if "submitit.core._submit" in _line(p) and _is_python(p)
        ]


Sweeps = Callable[..., Sweep]
"""What the fixture of that name gives: a sweep from a folder, overrides and `grade_here`."""


def outcome_of(layout: Layout) -> Outcome:
    """Return of every run what no fault may change, from the tables.

    See docs/methods.md, Which record counts.
    """
    compact_folder(layout.root)
    grades = {row["run_id"]: row for row in _rows(layout, "grades")}
    runs = _rows(layout, "runs")
    planned = [run.run_id for run in read_plan(layout.plan)]
    assert sorted(row["run_id"] for row in runs) == sorted(planned), "every run exactly once"
    assert sorted(grades) == sorted(planned), "every grade exactly once"
    science = ("failure_class", "patch_sha256", "n_steps", "input_tokens")
    verdict = ("grade_class", "resolved", "f2p_passed", "p2p_passed")
    return {
        row["run_id"]: (
            *(row[name] for name in science),
            *(grades[row["run_id"]][name] for name in verdict),
        )
        for row in runs
    }


def assert_nothing_left(sweep: Sweep) -> None:
    """No process, no live claim, no status file, nothing in the scratch folder."""
    wait_for(lambda: not sweep.processes(), "no process of the sweep is left", 20)
    layout = sweep.layout
    assert [p.name for p in layout.claims.iterdir() if not p.name.endswith(".done")] == []
    assert sweep.sandboxes() == []


def kill(process: psutil.Process) -> None:
    """End a process as the kernel would, short of memory."""
    os.kill(process.pid, signal.SIGKILL)


def _rows(layout: Layout, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(layout.table(table)).to_pylist())


def _line(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())


def _is_python(process: psutil.Process) -> bool:
    return "python" in Path((process.info["cmdline"] or [""])[0]).name
