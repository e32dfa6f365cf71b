"""How a sweep becomes arrays: split by what the site allows, with the resources it was told."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.host.slurm import JobState, job_states
from pipeline.host.slurm_facts import gpus_of, tightest
from pipeline.host.slurm_job import duration_s
from pipeline.planning.cluster_run import AliveError, refuse_while_alive
from pipeline.planning.config import sweep_spec
from pipeline.planning.estimate import estimated
from pipeline.planning.prepare import prepare
from pipeline.planning.slurm_site import JobRequest, fitted, slurm_parameters, split
from pipeline.planning.submit import SubmittedJob, record_submission
from pipeline.records.layout import Layout

POOL = (
    "cluster.rollout={n_tasks: 6, throttle: 2, partition: gpu, gres: 'gpu:a100:2', "
    "cpus: 24, mem_gb: 180, time_min: 90}"
)


def request(n_tasks: int, role: Any = "rollout", model: str = "sim") -> JobRequest:
    return JobRequest(role=role, model=model, n_tasks=n_tasks)


def test_sbatch_is_told_what_the_pool_says(tmp_path: Path) -> None:
    words = ["+sweep=demo", "cluster=slurm", POOL, "cluster.account=1234", f"results={tmp_path}"]
    told = slurm_parameters(sweep_spec(words), request(6), of_tasks=6, after=["17", "18"])
    assert told["job_name"] == "demo-rollout-sim"
    assert (told["time"], told["cpus_per_task"], told["array_parallelism"]) == (90, 24, 2)
    assert told["srun_args"] == ["--cpus-per-task=24", "--cpu-bind=none"]
    assert told["additional_parameters"] == {
        "kill-on-invalid-dep": "yes",
        "requeue": True,
        "gres": "gpu:a100:2",
        "mem": "184320M",
        "dependency": "afterany:17:18",
        "partition": "gpu",
        "account": "1234",
    }
    assert told["wckey"] is None, "submitit has a label of its own, which nobody asked for"


def test_the_parts_of_a_split_array_share_the_throttle(tmp_path: Path) -> None:
    words = ["+sweep=demo", "cluster=slurm", "cluster.rollout.throttle=4", f"results={tmp_path}"]
    told = slurm_parameters(sweep_spec(words), request(10), of_tasks=40)
    assert told["array_parallelism"] == 1


@given(st.integers(1, 5000), st.integers(1, 1001))
def test_a_split_keeps_every_task_and_exceeds_no_limit(n_tasks: int, most: int) -> None:
    parts = split([request(n_tasks)], most)
    numbers = [part.first + i for part in parts for i in range(part.n_tasks)]
    assert numbers == list(range(n_tasks))
    assert max(part.n_tasks for part in parts) <= most


def test_without_a_known_limit_nothing_is_split() -> None:
    assert split([request(5000)], None) == [request(5000)]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=6), st.integers(0, 600))
def test_what_is_submitted_fits_the_room_and_leaves_no_array_out(
    sizes: list[int], room: int
) -> None:
    wanted = [request(size) for size in sizes]
    if room < len(wanted) and sum(sizes) > room:
        with pytest.raises(ValueError, match="more tasks in the queue"):
            fitted(wanted, room)
        return
    found = fitted(wanted, room)
    assert sum(r.n_tasks for r in found) <= max(room, 0)
    assert all(1 <= f.n_tasks <= w.n_tasks for f, w in zip(found, wanted, strict=True))


def test_without_a_limit_all_is_submitted() -> None:
    assert fitted([request(9)], None) == [request(9)]


@pytest.mark.parametrize(
    ("gres", "n_gpus"),
    [
        *((None, 0), ("", 0), ("gpu", 1), ("gpu:2", 2), ("gpu:a100:2", 2), ("gpu:a100", 1)),
        *(("nvme:1,gpu:t4:3", 3), ("gpu:a100:2(S:0-1)", 2), ("gres/gpu:a100:4", 4)),
    ],
)
def test_gpus_are_counted_in_a_request(gres: str | None, n_gpus: int) -> None:
    assert gpus_of(gres) == n_gpus


def test_what_a_job_asks_for_is_charged_even_if_the_model_needs_less(tmp_path: Path) -> None:
    words = ["+sweep=demo", "cluster=slurm", f"results={tmp_path}", "agent.expected_wall_s=3600"]
    words += ["cluster.su_per_core_hour=1", "cluster.su_per_gpu_hour=72"]
    spec = sweep_spec([*words, "cluster.rollout.gres=gpu:a100:2"])
    estimate = estimated(spec, prepare(spec).runs)
    assert estimate.gpu_hours == pytest.approx(96 / spec.cluster.rollout.concurrency * 2)
    assert estimate.service_units == pytest.approx(estimate.gpu_hours * 72 + estimate.core_hours)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0:59", 59.0), ("10:00", 600.0), ("2:00:00", 7200.0), ("4-00:00:00", 345600.0)),
        *(("UNLIMITED", None), ("INVALID", None), ("", None)),
    ],
)
def test_slurms_durations_are_read(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


def test_the_tightest_known_limit_counts() -> None:
    assert tightest([None, 7, 3]) == 3
    assert tightest([None]) is None


def test_a_queue_that_cannot_be_asked_leaves_jobs_unknown_and_nothing_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    layout = Layout(tmp_path / "sweep")
    layout.submissions.mkdir(parents=True)
    record_submission(
        layout, "slurm", [SubmittedJob(job_id="17_0", role="rollout", model="sim", index=0)]
    )
    assert job_states(["17_0"]) == {"17_0": JobState.UNKNOWN}
    with pytest.raises(AliveError, match=r"17_0 \(unknown\)"):
        refuse_while_alive(layout)


def test_without_jobs_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert job_states([]) == {}
    refuse_while_alive(Layout(tmp_path))
