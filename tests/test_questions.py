"""Sweeps of questions, run, graded and reported by one command on the simulated agent."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.benchmarks.swe_qa.judging import DIMENSIONS
from pipeline.grade import main as grade
from pipeline.launch import main as launch
from tests.fakes import ScriptedModel, says
from tests.words import words_of

LOOK = [{"title": "Read the data", "explore": ["ls -la", "wc data.txt", "head -20 data.txt"]}]


def recipe(question: str, right: str, wrong: str, skill: float) -> dict[str, Any]:
    return {
        "summary": question,
        "steps": LOOK,
        "solvable": skill > 0,
        "wrong": None,
        "skill": skill,
        "answers": [right, wrong],
    }


def oolong_row(number: int) -> dict[str, Any]:
    question = f"How many lines of part {number} say hello? Answer as 'Answer: number'."
    return {
        "id": number,
        "dataset": "messages",
        "context_len": 500,
        "context_window_text": "".join(f"{k}: hello\n" for k in range(number + 5)),
        "question": question,
        "answer": f"[{number + 5}]",
        "answer_type": "ANSWER_TYPE.NUMERIC",
        # Even ones are answered right, odd ones off by one.
        "recipe": recipe(
            question, f"Answer: {number + 5}", f"Answer: {number + 6}", 1.0 - number % 2
        ),
    }


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sweep(name: str, dataset: Path, results: Path, *words: str) -> list[str]:
    given = (
        *("cluster=local", "sandbox=local", "model=sim", "seeds=[0]", "~arms.observation_mask"),
        *words,
    )
    return words_of(f"+sweep={name}", f"dataset={dataset}", f"results={results}", *given)


def grades(results: Path) -> list[tuple[Any, ...]]:
    tables = results / "tables"
    return duckdb.sql(
        f"SELECT r.arm, r.instance_id, r.answer, g.score, g.resolved FROM "
        f"read_parquet('{tables}/runs/*.parquet') r "
        f"JOIN read_parquet('{tables}/grades/*.parquet') g "
        f"USING (run_id) ORDER BY ALL"
    ).fetchall()


@pytest.mark.parametrize("agent", [[], ["agent=trae", "agent.submit=answer"]], ids=["mini", "trae"])
def test_oolong_answers_are_scored_and_reported(
    tmp_path: Path, agent: list[str], capsys: pytest.CaptureFixture[str]
):
    rows = written(tmp_path / "rows.jsonl", [oolong_row(number) for number in range(4)])
    assert launch(sweep("oolong", rows, tmp_path / "results", *agent)) == 0
    found = grades(tmp_path / "results")
    assert len(found) == 8
    for _, instance_id, answer, score, resolved in found:
        number = int(instance_id.rpartition("__")[2])
        right = number % 2 == 0
        assert answer.strip() == f"Answer: {number + (5 if right else 6)}"
        assert (score, resolved) == (1.0 if right else 0.75, right)
    said = capsys.readouterr().out
    assert "score: plan_prune 0.875 against 0.875, difference +0.000" in " ".join(said.split())
    report = tmp_path / "results" / "report"
    assert "score: plan_prune 0.875" in (report / "report.html").read_text()
    assert "sign_flip_p" in (report / "tables" / "scores.csv").read_text()


def test_swe_qa_answers_are_judged_once_each_and_the_judges_noise_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tree = tmp_path / "trees" / "own__shop"
    tree.mkdir(parents=True)
    from pipeline.benchmarks.git import git

    (tree / "data.txt").write_text("price\n")
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    git(tree, *who, "commit", "--quiet", "--message=one")
    question = "Where is the price rounded?"
    row = {"repo": "own/shop", "commit": "HEAD", "question": question, "answer": "In price.py."}
    rows = written(
        tmp_path / "rows.jsonl", [{**row, "recipe": recipe(question, "In price.py.", "No.", 1.0)}]
    )
    marks = says(json.dumps({"comment": "fine", **dict.fromkeys(DIMENSIONS, 7)}))
    with ScriptedModel([marks] * 5) as judge:
        words = sweep(
            *("swe_qa", rows, tmp_path / "results"),
            f"benchmark.trees={tmp_path / 'trees'}",
            f"benchmark.judge.base_url={judge.base_url}",
            "benchmark.judge.model=strong",
        )
        assert launch([*words, "dry_run=true"]) == 0
        assert "the judge strong grades up to 2 answers" in capsys.readouterr().out
        assert launch(words) == 0
        assert [score for *_, score, _ in grades(tmp_path / "results")] == [
            pytest.approx(2 / 3)
        ] * 2
        assert len(judge.requests) == 1  # both arms gave the same answer
        assert grade([str(tmp_path / "results"), "--judge-noise", "30"]) == 0
        said = capsys.readouterr().out
        assert "1 answer graded twice: 1 with the same score" in said
        assert len(judge.requests) == 2


def test_a_sweep_without_a_judge_is_refused_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    row = {"repo": "own/shop", "commit": "HEAD", "question": "q", "answer": "a"}
    rows = written(tmp_path / "rows.jsonl", [{**row, "recipe": recipe("q", "a", "b", 1.0)}])
    assert launch(sweep("swe_qa", rows, tmp_path / "results")) == 2
    said = capsys.readouterr().err
    assert "benchmark.judge.model=NAME" in said
    assert "clone the repositories there, as OWNER__NAME" in said
