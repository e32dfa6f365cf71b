"""Oolong: rows become questions about a file, answers are scored by the published rules."""

import importlib.util
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.benchmarks.oolong.format import FORMAT, MAX_CONTEXT_TOKENS
from pipeline.benchmarks.oolong.scoring import score_of
from pipeline.benchmarks.rows import DatasetError
from pipeline.grading.evaluation import EvalSite
from pipeline.records.failure import GradeClass

CHECKOUT = Path(__file__).parents[2].parent / "oolong" / "src" / "eval" / "eval_helpers.py"
"""The published script, where a user has put a checkout beside this one."""


def synth(answer: str, kind: str = "LABEL") -> dict[str, Any]:
    return {"id": 1, "answer": answer, "answer_type": f"ANSWER_TYPE.{kind}"}


def real(answer: str) -> dict[str, Any]:
    return {"id": 1, "answer": answer}


CASES: list[tuple[dict[str, Any], str, float]] = [
    (synth("['spam']"), "Label: spam", 1),
    (synth("['spam']"), "I counted them. Label: **[spam]**", 1),
    (synth("['spam']"), "spam", 1),
    (synth("['spam']"), "After reading all of the messages the label is spam", 1),
    (synth("['spam']"), "Label: Spam", 0),
    (synth("['more common than']", "COMPARISON"), "Answer: ham is more common than spam", 1),
    (synth("['less common than']", "COMPARISON"), "Answer: ham is more common than spam", 0),
    (synth("['same frequency as']", "COMPARISON"), "Answer: the same frequency as before", 1),
    (synth("[7]", "NUMERIC"), "Answer: 7", 1),
    (synth("[7]", "NUMERIC"), "Answer: 9", 0.75**2),
    (synth("[7]", "NUMERIC"), "Answer: seven", 0),
    (synth("[7]", "NUMERIC"), "Answer: " + "9" * 400, 0),
    (synth("[datetime.date(2023, 5, 7)]", "DATE"), "Date: May 7, 2023", 1),
    (synth("[datetime.date(2023, 5, 7)]", "DATE"), "Date: 2023-05-08", 0),
    (synth("[datetime.date(2023, 5, 7)]", "DATE"), "Date: soon", 0),
    (real("12"), r"so \boxed{10}", 0.75**2),
    (real("12"), "12", 0),
    (real("Fireball"), r"\boxed{\text{fireball }}", 1),
    (real("Fireball"), "fireball", 1),
    (real("Keg, Vex, Vax"), r"\boxed{Vax, Keg, Scanlan}", 2 / 3),
    (real("Keg, Vex, Vax"), r"\boxed{Keg}", 0),
]


@pytest.mark.parametrize(("row", "answer", "score"), CASES)
def test_answers_score_by_the_published_rules(row: dict[str, Any], answer: str, score: float):
    assert score_of(row, answer) == pytest.approx(score)


def test_a_date_without_a_year_scores_nothing_on_any_day():
    row = synth(f"[datetime.date({time.localtime().tm_year}, 5, 7)]", "DATE")
    assert score_of(row, "Date: May 7") == 0


answers = st.text() | st.sampled_from([answer for _, answer, _ in CASES])


@given(st.sampled_from([row for row, _, _ in CASES]), answers)
def test_every_answer_has_a_score_between_0_and_1(row: dict[str, Any], answer: str):
    assert 0 <= score_of(row, answer) <= 1


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_a_count_loses_a_quarter_for_each_it_is_off(gold: int, off: int):
    row = synth(f"[{gold}]", "NUMERIC")
    assert score_of(row, f"Answer: {gold + off}") == pytest.approx(0.75**off)


@pytest.mark.skipif(not CHECKOUT.exists(), reason="no checkout of Oolong beside this one")
def test_scores_equal_those_of_the_published_script(monkeypatch: pytest.MonkeyPatch):
    for name in ("litellm", "datasets", "jsonlines", "tiktoken", "transformers"):
        stub: Any = types.ModuleType(name)
        stub.load_dataset = stub.AutoTokenizer = None
        monkeypatch.setitem(sys.modules, name, stub)
    spec = importlib.util.spec_from_file_location("oolong_eval", CHECKOUT)
    assert spec
    assert spec.loader
    published: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    filler = {"context_window_id": 1, "dataset": "any"}
    for row, _, _ in CASES:
        score = (
            published.synth_process_response
            if "answer_type" in row
            else published.dnd_process_response
        )
        for _, answer, _ in CASES:
            theirs = score({**filler, **row}, answer, "model")["score"]
            assert score_of(row, answer) == pytest.approx(float(theirs)), (row, answer)


def no_sandbox() -> Any:
    raise AssertionError("rules need no sandbox")


ROW = {
    "id": 11,
    "dataset": "messages",
    "context_len": 1024,
    "context_window_text": "1: win a prize\n2: hello\n",
    "context_window_text_with_labels": "1: win a prize | spam\n2: hello | ham\n",
    "question": "How many messages are spam? Give your answer as 'Answer: number'.",
    "answer": "[1]",
    "answer_type": "ANSWER_TYPE.NUMERIC",
}


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_is_a_question_about_a_file_that_does_not_show_the_labels(tmp_path: Path):
    (row,) = FORMAT.rows(written(tmp_path, ROW))
    assert row["instance_id"] == "oolong_synth__11"
    assert row["problem_statement"] == ROW["question"]
    FORMAT.checkout(row, tmp_path / "box")
    assert (tmp_path / "box" / "data.txt").read_text() == ROW["context_window_text"]
    assert "spam" not in str({**row, "problem_statement": "", "question": ""})


def test_contexts_beyond_the_papers_limit_are_left_out(tmp_path: Path):
    longer = {**ROW, "id": 12, "context_len": MAX_CONTEXT_TOKENS * 2}
    assert [row["id"] for row in FORMAT.rows(written(tmp_path, ROW, longer))] == [11]
    with pytest.raises(DatasetError, match="every context has more than"):
        FORMAT.rows(written(tmp_path, longer))


def test_a_row_whose_answer_cannot_be_read_is_refused(tmp_path: Path):
    with pytest.raises(
        DatasetError, match=r"row 1 \(oolong_synth__11\): the answer cannot be read"
    ):
        FORMAT.rows(written(tmp_path, {**ROW, "answer": "seven"}))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("[7]", "NUMERIC"), ("['ham']", "LABEL"), ("[datetime.date(2023, 5, 7)]", "DATE")],
)
def test_the_gold_answer_is_solved_and_another_is_not(answer: str, kind: str):
    row = synth(answer, kind)
    grade = FORMAT.grader.grade(
        row, FORMAT.grader.gold(row, no_sandbox), no_sandbox, EvalSite(), timeout_s=1
    )
    assert (grade.grade_class, grade.score) == (GradeClass.RESOLVED, 1)
    wrong = FORMAT.grader.grade(row, "Answer: none", no_sandbox, EvalSite(), timeout_s=1)
    assert (wrong.grade_class, wrong.score) == (GradeClass.UNRESOLVED, 0)
