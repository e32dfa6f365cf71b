"""`status` says why a sweep does not get on and what to do, and stops watching what is over."""

import json
from pathlib import Path

import pytest

from pipeline import status
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import write_folder
from pipeline.planning.job_log import last_words
from pipeline.planning.levers import SHARED_CALLS
from pipeline.planning.prepare import prepare
from pipeline.planning.submit import SubmittedJob, job_log, record_submission
from pipeline.records.cut_short import note_cut_short
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.plan import read_plan
from tests.planning.slurm_standins import StandIns, stand_ins
from tests.records.samples import grade_record, run_record
from tests.words import words_of


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    found = stand_ins(tmp_path / "slurm")
    monkeypatch.setenv("PATH", found.path)
    return found


def submitted(tmp_path: Path, *words: str, jobs: tuple[str, ...] = ("7_0", "7_1")) -> Layout:
    """Return a folder whose jobs were submitted; the queue does not list them any more."""
    layout = Layout(tmp_path / "sweep")
    small = ("+sweep=demo", "cluster=slurm", "seeds=[0]", "instances.sample=1", "model.n_gpus=2")
    sweep = prepare(sweep_spec(words_of(*small, f"results={layout.root}", *words)))
    write_folder(layout, sweep, "new")
    record_submission(
        layout,
        "slurm",
        [
            SubmittedJob(job_id=job_id, role="rollout", model="sim", index=n)
            for n, job_id in enumerate(jobs)
        ],
    )
    return layout


def finish(layout: Layout, *, grade: bool = True, leave: int = 0) -> None:
    runs = read_plan(layout.plan)
    with new_journal(layout, "rollout-sim-0-7_0-r0") as journal:
        for planned in runs[: len(runs) - leave]:
            record = run_record(planned.run_id)
            journal.append_run(record)
            if grade:
                journal.append_grade(grade_record(record))


def prints(layout: Layout, job_id: str, text: str) -> None:
    log = job_log(layout, job_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


def shown(layout: Layout, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code = status.main([str(layout.root), *options])
    return code, " ".join(capsys.readouterr().out.split())


FAILED = """submitit INFO (2026-12-01) - Starting
planprune: something on the way
submitit ERROR (2026-12-01) - Submitted job triggered an exception
Traceback (most recent call last):
  File "x.py", line 3, in main
pipeline.records.failure.ServerError: the server of m ended with status {}; CUDA out of memory
srun: error: node1: task 0: Exited with exit code 1
"""


def test_jobs_that_failed_alike_are_shown_once_with_their_error_and_their_log(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path)
    for number in (0, 1):
        prints(layout, f"7_{number}", FAILED.format(number))
    code, said = shown(layout, capsys)
    assert code == 0
    assert "2 rollout jobs ended without results (7_0, ...): the server of m ended with" in said
    assert said.count("CUDA out of memory") == 1
    assert "7_0_0_log.out" in "".join(said.split())
    assert "4 runs of 4 without a result, and no worker is running" in said
    assert slurm.scripts() == []


def test_jobs_without_a_log_never_started_and_slurm_is_asked_why(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scontrol = slurm.root / "bin" / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'JobId=7 JobState=CANCELLED Reason=NodeDown Dep=(null)'\n")
    _, said = shown(submitted(tmp_path), capsys)
    assert "2 rollout jobs ended without results (7_0, ...): never started: CANCELLED" in said
    assert "NodeDown" in said


def test_what_slurm_has_forgotten_is_not_made_up(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm.root / "bin" / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    _, said = shown(submitted(tmp_path), capsys)
    assert "never started: Slurm gives no reason" in said


def test_a_job_too_short_for_a_run_is_no_job_well_done(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path, jobs=("7",))
    well = "submitit INFO - Job completed successfully\n"
    prints(layout, "7", f"nothing started: 60 s are left for it\n{{'finished': 0}}\n{well}")
    _, said = shown(layout, capsys)
    assert "1 rollout job ended without results (7): nothing started: 60 s are left for it" in said
    prints(layout, "7", f"{{'finished': 0}}\n{well}")
    _, said = shown(layout, capsys)
    assert "ended without results" not in said
    assert slurm.scripts() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slurmstepd: error: *** STEP CANCELLED DUE TO TIME LIMIT ***\n", "DUE TO TIME LIMIT"),
        ("a\nb\nc\nd\n", "b / c / d"),
        ("planprune: this line of cluster.setup failed: module load X\n", "module load X"),
        (FAILED.format(1), "the server of m ended"),
    ],
)
def test_a_logs_last_words_are_its_error_or_its_last_lines(text: str, words: str) -> None:
    assert words in last_words(text)


def test_watching_ends_with_0_when_all_is_done_and_with_1_when_nothing_is_to_come(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path)
    watch = ("--watch", "--every", "0.05")
    code, said = shown(layout, capsys, *watch)
    assert code == 1
    assert said.startswith("0/4 runs, 0 graded")
    assert "launch again to run what is missing" in said
    finish(layout)
    code, said = shown(layout, capsys, *watch)
    assert code == 0
    assert "->" not in said
    assert slurm.scripts() == []


def test_a_sweep_that_is_not_to_be_graded_is_complete_without_grades(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path, "grade=false")
    finish(layout, grade=False)
    assert shown(layout, capsys, "--watch")[0] == 0
    assert slurm.scripts() == []


def test_missing_grades_come_with_the_line_that_makes_them(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path)
    finish(layout, grade=False)
    prints(layout, "7_1", "submitit INFO - Job completed successfully\n")
    code, said = shown(layout, capsys, "--watch")
    assert code == 1
    assert "4 finished runs without a grade, and no grader is running" in said
    assert "python -m pipeline.grade" in said
    assert slurm.scripts() == []


def test_a_run_that_no_job_is_long_enough_for_is_named(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path)
    first = read_plan(layout.plan)[-1].run_id
    note_cut_short(layout, "w", {first: 3600.0})
    finish(layout, leave=1)
    _, said = shown(layout, capsys)
    assert f"1 run did not end before a job did: {first} had 60 min" in said
    assert slurm.scripts() == []


def test_json_has_the_hours_that_were_used_are_left_and_are_allowed(
    slurm: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = submitted(tmp_path, "max_gpu_hours=4", "agent.expected_wall_s=3600")
    layout.usage.mkdir()
    layout.usage_file("w").write_text(
        '{"worker": "w", "gpus": 2, "seconds": 9000.0, "ended": true}'
    )
    assert status.main([str(layout.root), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    # Four runs of an hour in one server of two GPUs, which has slots for all of them.
    assert data["gpu_hours"] == {"used": 5.0, "left": 2.0, "cap": 4.0}
    assert any("max_gpu_hours" in finding["what"] for finding in data["findings"])
    assert data["planned"] == 4
    assert data["is_under_way"] is False
    assert slurm.scripts() == []


@pytest.mark.usefixtures("slurm")
def test_hours_that_are_left_are_those_of_the_calls_that_forks_will_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fork = ("fork=true", "+fork_from.plan_prune=sham_cleanup", "+fork_from.no_plan=no_plan")
    layout = submitted(tmp_path, "agent.expected_wall_s=3600", *fork)
    assert status.main([str(layout.root), "--json"]) == 0
    left = json.loads(capsys.readouterr().out)["gpu_hours"]["left"]
    # Of four runs one begins with another's, for about a quarter of its calls.
    assert left == pytest.approx(2.0 * (1 - SHARED_CALLS["plan_prune"] / 4))
