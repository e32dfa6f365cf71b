"""Grading the runs of a sweep: every finished run once, and nothing of ours counted as theirs."""

import gzip
import json
import os
import shutil
import signal
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from pipeline.benchmarks.swe_bench.format import OfficialGrader
from pipeline.grade import main as grade_door
from pipeline.grading.cache import GradeCache
from pipeline.grading.evaluation import EvalSite
from pipeline.grading.verdict import Grade
from pipeline.host.files import replace_bytes
from pipeline.records.failure import GradeClass
from pipeline.records.frames import FrameKind
from pipeline.records.grade_record import GradeRecord, grade_row
from pipeline.records.journal import grade_of, new_journal, scan
from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock, read_rows, rows_bytes
from pipeline.records.rebuild import recorded_run
from pipeline.records.run_record import RunRecord
from pipeline.records.states import run_states
from pipeline.records.tables import compact
from pipeline.worker import grade_job, rollout_job
from pipeline.worker.grade_cache import cached_grades
from pipeline.worker.grade_job import GradeContext, grade_run
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory
from tests.worker.conftest import StartWorker, launched


@pytest.fixture(scope="session")
def rolled_out(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Four runs: two that submit a patch, two that reach the limit with something changed."""
    root = tmp_path_factory.mktemp("rolled-out") / "sweep"
    ids = "instances.ids=[toy__ledger-1,toy__tabular-1]"
    layout = launched(root, ids, "agent.step_limit=45")
    rollout_job.main(str(layout.root), "sim", 0)
    return layout


@pytest.fixture
def layout(rolled_out: Layout, tmp_path: Path) -> Layout:
    shutil.copytree(rolled_out.root, tmp_path / "sweep")
    return Layout(tmp_path / "sweep")


def change_scripts(layout: Layout, change: Callable[[str], str]) -> None:
    rows = read_rows(layout.dataset).values()
    changed = [{**row, "eval_script": change(row["eval_script"])} for row in rows]
    replace_bytes(layout.dataset, rows_bytes(changed))


def grades(layout: Layout) -> list[GradeRecord]:
    return [
        grade_of(frame)
        for path in layout.journal_paths()
        for frame in scan(path).frames
        if frame.kind == FrameKind.GRADE
    ]


def test_every_run_gets_one_grade_and_the_tally_adds_up(layout: Layout) -> None:
    summary = grade_job.main(str(layout.root), 0)
    states = run_states(layout)
    assert summary["graded"] == len(states) == 4
    submitted = [g for g in grades(layout) if g.patch_kind == "submitted"]
    assert Counter(g.run_id for g in submitted) == dict.fromkeys(states, 1)
    tally = Counter(g.grade_class for g in submitted)
    assert sum(tally.values()) == 4
    assert tally[GradeClass.RESOLVED] == 2
    assert tally[GradeClass.UNRESOLVED] == 2
    assert all(state.resolved is not None for state in states.values())


def test_a_patch_left_at_a_limit_is_graded_apart_from_what_was_submitted(layout: Layout) -> None:
    grade_job.main(str(layout.root), 0)
    at_limit = [s for s in run_states(layout).values() if s.limit_patch_sha256]
    assert len(at_limit) == 2
    for state in at_limit:
        primary, secondary = (
            next(g for g in grades(layout) if g.run_id == state.run_id and g.patch_kind == kind)
            for kind in ("submitted", "limit")
        )
        assert primary.patch_exists is False
        assert primary.resolved is False
        assert secondary.patch_exists is True
        assert secondary.patch_sha256 == state.limit_patch_sha256
        assert state.resolved is False


def test_a_second_look_finds_nothing_to_grade(layout: Layout) -> None:
    grade_job.main(str(layout.root), 0)
    before = grades(layout)
    assert grade_job.main(str(layout.root), 1)["graded"] == 0
    assert grades(layout) == before


def test_the_very_same_patch_is_graded_once(layout: Layout) -> None:
    grade_job.main(str(layout.root), 0)
    patches = [g.patch_sha256 for g in grades(layout) if g.patch_exists]
    ran = [g for g in grades(layout) if g.patch_exists and g.seconds]
    assert len({g.patch_sha256 for g in ran}) == len(set(patches))
    # The next worker knows what this one has graded.
    assert len(cached_grades(layout).grades) == len(set(patches))


def test_a_timeout_is_tried_once_more_and_then_counts_as_unresolved(layout: Layout) -> None:
    change_scripts(layout, lambda script: script.replace("python3 runtests.py", "sleep 60"))
    replace_bytes(
        layout.lock,
        layout.lock.read_bytes().replace(b"grade_timeout_s: 1800.0", b"grade_timeout_s: 0.5"),
    )
    assert grade_job.main(str(layout.root), 0)["grade_infra"] == 0
    timed_out = [g for g in grades(layout) if g.grade_class is GradeClass.GRADE_TIMEOUT]
    assert timed_out
    assert {g.timeouts for g in timed_out} == {2}
    assert all(s.resolved is False for s in run_states(layout).values())


def test_a_broken_environment_is_tried_again_and_never_counts_as_unresolved(
    layout: Layout, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.worker.blocks.BACKOFF_S", 0.01)
    broken = "echo 'Temporary failure in name resolution'; false"
    change_scripts(layout, lambda script: script.replace("python3 runtests.py", broken))
    grade_job.main(str(layout.root), 0)
    states = run_states(layout)
    submitted = {run_id for run_id, s in states.items() if s.patch_sha256}
    assert {run_id for run_id, s in states.items() if s.resolved is None} == submitted
    attempts = Counter(g.run_id for g in grades(layout) if g.patch_kind == "submitted")
    assert all(attempts[run_id] == 3 for run_id in submitted)
    told = capfd.readouterr().err
    assert "runs are not graded yet" in told
    assert f"python -m pipeline.grade {layout.root}" in told


def test_runs_without_a_result_get_no_grade_and_are_named(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in layout.journal_paths():
        path.unlink()
    assert grade_job.main(str(layout.root), 0)["graded"] == 0
    assert grades(layout) == []
    assert "4 runs have no result yet" in capfd.readouterr().err


def test_the_door_fails_where_planned_runs_have_no_record_and_says_how_many(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    assert grade_door([str(layout.root)]) == 0
    for path in layout.journal_paths():
        path.unlink()
    shutil.rmtree(layout.tables)
    assert grade_door([str(layout.root)]) == 1
    assert "4 planned runs have no valid record; launch" in capfd.readouterr().err


def test_runs_are_graded_from_the_tables_where_their_journal_is_gone(layout: Layout) -> None:
    compact(layout)
    for path in layout.journal_paths():
        path.unlink()
    assert grade_job.main(str(layout.root), 0)["graded"] == 4
    assert sum(bool(state.resolved) for state in run_states(layout).values()) == 2


def test_what_the_tests_printed_is_kept_in_one_archive_a_worker(layout: Layout) -> None:
    grade_job.main(str(layout.root), 0)
    (archive,) = layout.logs.glob("grade-*.tar")
    with tarfile.open(archive) as tar:
        texts = {m.name: gzip.decompress(tar.extractfile(m).read()) for m in tar.getmembers()}
    assert texts
    assert all(b">>>>> Start Test Output" in text for text in texts.values())
    assert {name.split("/")[0] for name in texts} <= set(run_states(layout))


def test_grades_carry_the_official_report(layout: Layout) -> None:
    grade_job.main(str(layout.root), 0)
    resolved = next(g for g in grades(layout) if g.resolved)
    report = json.loads(resolved.report)
    assert report["resolved"] is True
    assert len(report["tests_status"]["FAIL_TO_PASS"]["success"]) == resolved.f2p_passed
    assert resolved.harness_version == "5.0.2"


def test_a_grading_worker_killed_in_the_middle_leaves_its_runs_to_the_next(
    layout: Layout, start_worker: StartWorker
) -> None:
    change_scripts(layout, lambda s: s.replace("python3 runtests", "sleep 2; python3 runtests"))
    worker = start_worker(layout, "grade_job")
    for _ in range(600):
        if list(layout.claims.glob("grade-*.claim")) and layout.journal_paths()[0:2]:
            break
        time.sleep(0.05)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    grade_job.main(str(layout.root), 1)
    submitted = Counter(g.run_id for g in grades(layout) if g.patch_kind == "submitted")
    assert submitted == dict.fromkeys(run_states(layout), 1)
    assert not list(layout.claims.glob("*.claim"))


class HalfGrader(OfficialGrader):
    """Every submission is half of a solution, for two reasons."""

    scored = True

    def grade(self, row, patch, start, site, *, timeout_s):  # noqa: ARG002
        return Grade(
            grade_class=GradeClass.UNRESOLVED,
            patch_exists=True,
            patch_applied=True,
            score=0.5,
            score_parts={"found": 1.0, "exact": 0.0},
        )


def graded_in_half(layout: Layout, kind: Literal["submitted", "limit"]) -> GradeRecord:
    """Return the grade, by a grader with scores, of a run that ended at its limit."""
    return grade_run(run_at_limit(layout), kind, 1, grading(layout, HalfGrader()))


def run_at_limit(layout: Layout) -> RunRecord:
    states = run_states(layout).values()
    return recorded_run(layout, next(state for state in states if state.limit_patch_sha256))


def grading(layout: Layout, grader: HalfGrader) -> GradeContext:
    return GradeContext(
        rows=read_rows(layout.dataset),
        sandboxes=OpenSandboxes(sandbox_factory(read_lock(layout.lock).spec, trusted=True)),
        cache=GradeCache(),
        logs=None,
        timeout_s=60,
        site=EvalSite(),
        grader=grader,
        worker="grade-0",
        node="here",
        now=time.time,
    )


class RightAnswers(HalfGrader):
    """Solved is what says 42."""

    def grade(self, row, patch, start, site, *, timeout_s):  # noqa: ARG002
        right = patch == "42"
        return Grade(
            grade_class=GradeClass.RESOLVED if right else GradeClass.UNRESOLVED,
            patch_exists=True,
            patch_applied=None,
            score=float(right),
        )


def test_a_run_that_answers_is_graded_by_its_answer(layout: Layout):
    answered = {answer: replace(run_at_limit(layout), answer=answer) for answer in ("42", "43", "")}
    found = {
        answer: grade_run(run, "submitted", 1, grading(layout, RightAnswers()))
        for answer, run in answered.items()
    }
    assert {answer: grade.resolved for answer, grade in found.items()} == {
        "42": True,
        "43": False,
        "": False,
    }
    for answer, run in answered.items():
        assert found[answer].patch_sha256 == run.patch_sha256
    assert len({run.patch_sha256 for run in answered.values()}) == 3


def test_a_score_and_its_parts_reach_the_table_and_are_reused_for_the_same_patch(layout: Layout):
    record = graded_in_half(layout, "limit")
    row = grade_row(record)
    assert (row["score"], json.loads(row["score_parts"])) == (0.5, {"found": 1.0, "exact": 0.0})
    with new_journal(layout, "grade-0") as journal:
        journal.append_grade(record)
    (known,) = cached_grades(layout).grades.values()
    assert (known.score, known.score_parts) == (0.5, {"found": 1.0, "exact": 0.0})


def test_a_run_that_submits_nothing_to_a_grader_with_scores_has_the_score_0(layout: Layout):
    assert graded_in_half(layout, "submitted").score == 0


def test_outcomes_of_the_official_harness_have_no_score(layout: Layout):
    grade_job.main(str(layout.root), 0)
    assert {record.score for record in grades(layout)} == {None}


@pytest.mark.parametrize("score", [-0.1, 1.5, float("nan")])
def test_a_score_outside_0_to_1_is_no_grade(score: float):
    with pytest.raises(ValueError, match="not between 0 and 1"):
        Grade(grade_class=GradeClass.UNRESOLVED, patch_exists=True, patch_applied=True, score=score)
