"""A worker whose model is served by a program in vLLM's place, which is killed in mid-run."""

import os
import signal
from pathlib import Path

from pipeline.host.proctable import all_processes
from pipeline.records.frames import FrameKind
from pipeline.records.journal import run_of, samples_of, scan
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


def test_runs_of_a_killed_server_are_repeated_on_the_next_one(
    tmp_path: Path, make_sweep: MakeSweep, start_worker: StartWorker
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").touch()
    layout = make_sweep(
        "model.kind=vllm",
        f"+model.serve.python={program(tmp_path)}",
        f"+model.serve.model_path={weights}",
        "+model.serve.flags=[--latency-ms,'300']",
        "agent.step_limit=4",
        "allow_unsandboxed=true",
    )
    worker = start_worker(layout)
    wait_for(lambda: bool(in_flight(layout)), "a run was in flight", worker)
    (first,) = servers_of(tmp_path).items()
    os.kill(first[1], signal.SIGKILL)
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
