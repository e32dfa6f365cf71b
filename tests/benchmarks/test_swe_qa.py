"""SWE-QA: questions about a repository at a commit, graded by a judge behind a real HTTP server."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.benchmarks.registry import format_of
from pipeline.benchmarks.rows import DatasetError
from pipeline.benchmarks.swe_qa import format as swe_qa
from pipeline.benchmarks.swe_qa.format import FORMAT, JudgeGrader
from pipeline.benchmarks.swe_qa.judging import DIMENSIONS, SYSTEM, question_of, score_of
from pipeline.grading.evaluation import EvalSite
from pipeline.grading.verdict import Grade
from pipeline.judging.endpoint import NoJudgeError
from pipeline.records.failure import GradeClass, SandboxError, ServerError
from pipeline.spec.judge import JudgeSpec
from pipeline.spec.sweep import BenchmarkSpec
from tests.fakes import Reply, ScriptedModel, says

ROW = {
    "repo": "own/shop",
    "commit_id": "v1",
    "question": "Where is the price rounded?",
    "answer": "In shop/price.py, by round_half_up.",
}


def marks(value: float, **others: Any) -> Reply:
    return says(json.dumps({"comment": "so", **dict.fromkeys(DIMENSIONS, value), **others}))


def row_of(tmp_path: Path, **others: Any) -> dict[str, Any]:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, **others}) + "\n")
    (row,) = FORMAT.rows(path)
    return row


def grader_of(server: ScriptedModel, folder: Path, **judge: Any) -> JudgeGrader:
    spec = JudgeSpec(base_url=server.base_url, model="scripted", journal=str(folder), **judge)
    return JudgeGrader(judge=spec)


def no_sandbox() -> Any:
    raise AssertionError("a judge needs no sandbox")


def graded(grader: JudgeGrader, row: dict[str, Any], answer: str) -> Grade:
    return grader.grade(row, answer, no_sandbox, EvalSite(), timeout_s=1)


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    folder = tmp_path / "trees" / "own__shop"
    folder.mkdir(parents=True)

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    git("init")
    (folder / "price.py").write_text("old\n")
    git("add", ".")
    git("commit", "-m", "one")
    git("tag", "v1")
    (folder / "price.py").write_text("new\n")
    git("commit", "-am", "two")
    return folder.parent


def test_the_agent_sees_the_files_of_the_commit_and_no_history(tmp_path: Path, clones: Path):
    found = format_of(BenchmarkSpec(name="qa", format="swe_qa", trees=str(clones)))
    assert found.checkout
    found.checkout(row_of(tmp_path), tmp_path / "box")
    assert (tmp_path / "box" / "price.py").read_text() == "old\n"
    log = subprocess.run(
        ["git", "log", "--format=%s"],
        cwd=tmp_path / "box",
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout == "own/shop at v1\n"
    assert sorted(p.name for p in (tmp_path / "box").iterdir()) == [".git", "price.py"]


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({"repo": "own/other"}, "no clone of own/other"),
        ({"commit_id": "v9"}, "own/shop at v9: git"),
    ],
)
def test_a_missing_clone_or_commit_is_named(
    tmp_path: Path, clones: Path, others: dict[str, str], says: str
):
    found = format_of(BenchmarkSpec(name="qa", format="swe_qa", trees=str(clones)))
    assert found.checkout
    with pytest.raises(SandboxError, match=says):
        found.checkout(row_of(tmp_path, **others), tmp_path / "box")


def test_a_row_without_a_commit_is_refused(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"row 1 .*missing commit"):
        row_of(tmp_path, commit_id=None)


def test_marks_of_1_and_10_are_scores_of_0_and_1_and_the_mean_counts():
    assert score_of(dict.fromkeys(DIMENSIONS, 1)) == 0
    assert score_of(dict.fromkeys(DIMENSIONS, 10)) == 1
    assert score_of({**dict.fromkeys(DIMENSIONS, 5), "clarity": 10}) == pytest.approx((6 - 1) / 9)


def test_an_answer_has_the_judges_marks_as_parts_and_its_comment_in_the_log(tmp_path: Path):
    row = row_of(tmp_path)
    with ScriptedModel([marks(4, clarity=9), marks(10)]) as server:
        grader = grader_of(server, tmp_path / "judge")
        grade, best = (
            graded(grader, row, "somewhere"),
            graded(grader, row, grader.gold(row, no_sandbox)),
        )
    assert grade.score_parts == {**dict.fromkeys(DIMENSIONS, 4), "clarity": 9}
    assert (grade.grade_class, grade.score) == (GradeClass.UNRESOLVED, pytest.approx(4 / 9))
    assert grade.test_output == "so"
    assert (best.grade_class, best.score) == (GradeClass.RESOLVED, 1)
    asked = server.requests[0]
    assert asked["temperature"] == 0
    assert asked["messages"][0]["content"] == SYSTEM
    for text in (ROW["question"], ROW["answer"], "somewhere"):
        assert text in asked["messages"][1]["content"]


def test_what_was_paid_for_is_not_asked_again_by_a_later_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    row = row_of(tmp_path)
    with ScriptedModel([marks(7)]) as server:
        first = graded(grader_of(server, tmp_path / "judge"), row, "somewhere")
        monkeypatch.setattr(swe_qa.os, "getpid", lambda: 99)
        again = graded(grader_of(server, tmp_path / "judge"), row, "somewhere")
        assert len(server.requests) == 1
    assert again.score == first.score


def test_a_used_up_budget_and_unusable_marks_are_our_failure_and_never_the_answers(tmp_path: Path):
    row = row_of(tmp_path)
    with ScriptedModel([marks(11), marks(0)]) as server:
        grader = grader_of(server, tmp_path / "judge", max_attempts=2)
        unusable = graded(grader, row, "somewhere")
        poor = grader_of(server, tmp_path / "other", input_price=1e6, max_cost=0.1)
        broke = graded(poor, row, "somewhere")
        assert len(server.requests) == 2
    assert unusable.grade_class is broke.grade_class is GradeClass.GRADE_INFRA
    assert "not between 1 and 10" in unusable.reason
    assert "benchmark.judge.max_cost=0.1" in broke.reason


def test_a_judge_that_is_gone_ends_the_grading_of_this_run_only(tmp_path: Path):
    row = row_of(tmp_path)
    with ScriptedModel([Reply(status=401)]) as server:
        grader = grader_of(server, tmp_path / "judge")
        with pytest.raises(ServerError):
            graded(grader, row, "somewhere")


def test_without_a_judge_the_message_says_what_to_write(tmp_path: Path):
    with pytest.raises(NoJudgeError, match=r"judge\.base_url="):
        JudgeGrader(judge=JudgeSpec(journal=str(tmp_path))).prepare()


def test_the_harness_version_names_model_temperature_and_prompt():
    one = JudgeGrader(judge=JudgeSpec(model="a"))
    assert one.version({}).startswith("judge a T=0 prompt ")
    assert one.version({}) != JudgeGrader(judge=JudgeSpec(model="b")).version({})
    assert one.version({}) != JudgeGrader(judge=JudgeSpec(model="a", temperature=0.5)).version({})


def test_the_prompt_asks_for_every_mark_that_is_read():
    assert all(f'"{name}": 1 to 10' in SYSTEM for name in DIMENSIONS)
    row = {**ROW, "instance_id": "x"}
    text = json.dumps(dict.fromkeys(DIMENSIONS, 3))
    assert set(question_of(row, "a").parse(text)) == {*DIMENSIONS, "comment"}
