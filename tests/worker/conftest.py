"""A small real sweep in a temporary folder: the toy benchmark, simulated, nothing replaced."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.host.process import ChildGroup, start_group
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import check_folder, write_folder
from pipeline.planning.prepare import prepare
from pipeline.records.layout import Layout
from pipeline.records.states import run_states
from tests.words import words_of

MakeSweep = Callable[..., Layout]
StartWorker = Callable[..., ChildGroup]

SMALL = (
    "+sweep=demo",
    "seeds=[0]",
    "instances.ids=[toy__ledger-1,toy__tabular-1]",
    "~arms.no_plan",
    "~arms.sham_cleanup",
)
SHORT = "agent.step_limit=6"
"""Runs end early, at a limit, and leave a patch or none: quick, and graded as such runs are."""

SLOW = "model.sim.latency_ms=60"
"""Even short runs then take most of a second, so that there is a middle to kill them in."""


def launched(root: Path, *overrides: str) -> Layout:
    """Launch into `root` everything but the workers."""
    scratch = root.parent / "scratch"
    words = words_of(*SMALL, f"cluster.scratch={scratch}", f"results={root}", *overrides)
    layout = Layout(root)
    opened, sweep = check_folder(layout, prepare(sweep_spec(words)))
    write_folder(layout, sweep, opened)
    return layout


def result_of(layout: Layout) -> dict[str, tuple[object, ...]]:
    """Return what must be equal after any fault (docs/methods.md, Which record counts)."""
    return {
        run_id: (s.failure_class, s.patch_sha256, s.n_steps, s.input_tokens, s.resolved)
        for run_id, s in run_states(layout).items()
        if not s.to_run
    }


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    def make(*overrides: str, name: str = "sweep") -> Layout:
        return launched(tmp_path / name, *overrides)

    return make


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Returns a function that starts a worker process; what is left of them is killed."""
    started: list[ChildGroup] = []

    def start(layout: Layout, job: str = "rollout_job", index: int = 0) -> ChildGroup:
        words = ["--model", "sim"] if job == "rollout_job" else []
        argv = [sys.executable, "-m", f"pipeline.worker.{job}", str(layout.root), *words]
        log = tmp_path / f"{job}-{index}.log"
        started.append(start_group([*argv, "--index", str(index)], log=log))
        return started[-1]

    yield start
    for child in started:
        child.stop(0)
