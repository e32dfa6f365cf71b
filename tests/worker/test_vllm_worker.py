"""A worker whose model is served by a program in vLLM's place, which dies, hangs or never comes."""

import os
import signal
from pathlib import Path

import pytest

from pipeline.host.proctable import all_processes
from pipeline.records.frames import FrameKind
from pipeline.records.journal import run_of, samples_of, scan
from pipeline.records.layout import Layout
from pipeline.records.states import run_states
from tests.serving.vllm_standin import program
from tests.worker.conftest import MakeSweep, StartWorker
from tests.worker.test_faults import in_flight, wait_for


def servers_of(folder: Path) -> dict[str, int]:
    """Return the server programs started from `folder`, with the port of each."""
    found = {}
    for process in all_processes():
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "tests.serving.vllm_standin" in words and f"{folder}/weights" in words:
            found[words[words.index("--port") + 1]] = process.pid
    return found


def served(make_sweep: MakeSweep, folder: Path, *overrides: str) -> Layout:
    """Launch four short runs on the program, everything but the workers."""
    weights = folder / "weights"
    weights.mkdir()
    (weights / "config.json").touch()
    return make_sweep(
        "model.kind=vllm",
        f"+model.serve.python={program(folder)}",
        f"+model.serve.model_path={weights}",
        "agent.step_limit=4",
        "allow_unsandboxed=true",
        *overrides,
    )


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_runs_of_a_broken_server_are_repeated_on_the_next_one(
    tmp_path: Path, make_sweep: MakeSweep, start_worker: StartWorker, fault: signal.Signals
) -> None:
    slow = ("+model.serve.flags=[--latency-ms,'300']", "+model.serve.stall_s=2.0")
    layout = served(make_sweep, tmp_path, *slow)
    worker = start_worker(layout)
    wait_for(lambda: bool(in_flight(layout)), "a run was in flight", worker)
    (first,) = servers_of(tmp_path).items()
    os.kill(first[1], fault)
    wait_for(lambda: bool(servers_of(tmp_path).keys() - {first[0]}), "another server", worker)
    assert worker.wait(120) == 0, (tmp_path / "rollout_job-0.log").read_text()
    assert servers_of(tmp_path) == {}

    frames = [frame for path in layout.journal_paths() for frame in scan(path).frames]
    records = [run_of(frame) for frame in frames if frame.kind == FrameKind.RUN]
    failed = [record for record in records if record.failure_class.is_infra]
    valid = [record for record in records if not record.failure_class.is_infra]
    assert len({record.run_id for record in valid}) == len(valid) == 4
    assert {record.failure_class.value for record in failed} == {"infra_server"}
    assert {record.run_id for record in failed} <= {r.run_id for r in valid if r.attempt > 1}
    assert {record.evidence for record in records} == {"live"}
    samples = [sample for f in frames if f.kind == FrameKind.SERVER for sample in samples_of(f)]
    assert samples


def test_a_server_that_never_comes_up_costs_no_run_and_its_worker_says_why(
    tmp_path: Path, make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    layout = served(make_sweep, tmp_path, "+model.serve.flags=[--exit,'3',--say,no-memory]")
    worker = start_worker(layout)
    assert worker.wait(120) != 0
    said = (tmp_path / "rollout_job-0.log").read_text()
    assert "ended with status 3 before it was ready" in said
    assert "no-memory" in said
    assert run_states(layout) == {}, "nothing counts as run, let alone as unresolved"
    assert not list(layout.claims.glob("*.claim")), "another worker may try"
    assert servers_of(tmp_path) == {}
