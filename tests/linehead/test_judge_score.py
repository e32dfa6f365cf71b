"""Grades of what heads keep, from a real HTTP server that answers from a script."""

import json

import numpy as np
import pytest

from pipeline.linehead.config import ConfigError
from pipeline.linehead.judge_score import JOURNAL, judge_scores, marked_text
from pipeline.linehead.label_table import labelled, write_labels
from pipeline.linehead.settings import EvalJob, JudgeSettings
from pipeline.records.failure import ServerError
from tests.fakes import Reply, ScriptedModel, says
from tests.linehead.runs import many_lines, run_of, samples_in

SAMPLES = samples_in(run_of(*[("", f"cmd {i}", many_lines(3, f"o{i}")) for i in range(3)]))

IDS = [s.sample_id for s in SAMPLES]

KEEP_ALL = {i: np.array([True, True, True]) for i in IDS}
KEEP_FIRST = {i: np.array([True, False, False]) for i in IDS}


def grade(score, **reply):
    return says(json.dumps({"reasoning": "so", "score": score}), **reply)


@pytest.fixture
def job(tmp_path):
    labels = [labelled(s, np.array([True, False, True])) for s in SAMPLES]
    write_labels(tmp_path / "labels.parquet", labels, {"labeller": "test"})

    def with_server(server, **judge):
        settings = {"base_url": server.base_url, "model": "scripted", "concurrency": 1, **judge}
        return EvalJob(features="", heads=(), out=str(tmp_path), judge_samples=2,
                       labels=str(tmp_path / "labels.parquet"),
                       judge=JudgeSettings(**settings))  # fmt: skip

    return with_server


def by_kept(body):
    """Grade a question by its kept lines."""
    text = body["messages"][1]["content"]
    return grade(text.count("\n+ "), usage={"prompt_tokens": 500, "completion_tokens": 100})


METHODS = {"head": KEEP_ALL, "head: bce": KEEP_FIRST}


def test_every_method_is_graded_on_the_same_outputs(job):
    with ScriptedModel(by_kept) as server:
        found = judge_scores(METHODS, job(server), {})
    assert found.means == {"head": 3.0, "head: bce": 1.0}
    assert found.n_graded == 2
    assert len(server.requests) == 4
    system, user = server.requests[1]["messages"]
    assert "1 to 10" in system["content"]
    assert "<command>\ncmd 0\n</command>" in user["content"]
    assert "+ o0 number 0\n- o0 number 1\n- o0 number 2\n" in user["content"]
    assert "o1 number 2" in user["content"].split("<after>")[1]


def test_lines_are_marked_one_by_one():
    assert marked_text("a\r\n\nb", np.array([True, False, True])) == "+ a\n- \n+ b"


def test_an_unusable_grade_is_asked_for_again_with_what_was_wrong(job):
    replies = [says("Good."), grade(11), says('{"reasoning": "?"}'), *[grade(4)] * 4]
    with ScriptedModel(replies) as server:
        found = judge_scores({"head": KEEP_ALL}, job(server, max_attempts=4), {})
    assert found.means == {"head": 4.0}
    told = [r["messages"][-1]["content"] for r in server.requests]
    assert "no JSON object" in told[1]
    assert "score is 11, not between 1 and 10" in told[2]
    assert "'score' is missing" in told[3]


def test_an_output_that_one_method_has_no_grade_for_counts_for_none(job):
    # Both of the first output, then nothing usable about the second under the second method.
    replies = [grade(8), grade(2), grade(1), *[says("no")] * 3]
    with ScriptedModel(replies) as server:
        found = judge_scores(METHODS, job(server), {})
    assert (found.n_graded, found.asked.n_failed) == (1, 1)
    assert found.means == {"head": 8.0, "head: bce": 2.0}


def test_a_failing_server_is_asked_again_and_one_that_refuses_stops_the_grading(job, tmp_path):
    replies = [Reply(status=503, body=b"{}"), grade(5), Reply(status=404, body=b"gone")]
    with ScriptedModel(replies) as server, pytest.raises(ServerError, match="gone"):
        judge_scores({"head": KEEP_ALL}, job(server), {})
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 1
    with ScriptedModel([grade(7)]) as server:
        found = judge_scores({"head": KEEP_ALL}, job(server), {})
    assert found.means == {"head": 6.0}
    assert (found.asked.n_known, found.asked.n_asked) == (1, 1)


def test_the_cost_cap_is_never_passed_and_leaves_whole_comparisons(job):
    prices = {"input_price": 1000.0, "output_price": 1000.0, "max_tokens": 200}
    with ScriptedModel(by_kept) as server:
        # Room for two grades, not for a third.
        found = judge_scores(METHODS, job(server, max_cost=1.5, **prices), {})
        assert found.asked.cost == pytest.approx(0.6 * found.asked.n_asked)
        assert found.asked.cost <= 1.5
        assert (found.asked.n_asked, found.asked.n_left, found.n_graded) == (2, 2, 1)
        rest = judge_scores(METHODS, job(server, max_cost=50.0, **prices), {})
    assert (rest.asked.n_known, rest.asked.n_left, rest.n_graded) == (2, 0, 2)
    assert rest.asked.cost == pytest.approx(2.4)


def test_other_decisions_are_another_question(job):
    with ScriptedModel(by_kept) as server:
        judge_scores({"head": KEEP_ALL}, job(server), {})
        again = judge_scores({"head": KEEP_ALL}, job(server), {})
        other = judge_scores({"head": KEEP_FIRST}, job(server), {})
    assert (again.asked.n_asked, other.asked.n_asked) == (0, 2)
    assert other.means == {"head": 1.0}


def test_grades_need_the_labels_file_and_an_endpoint_with_a_model():
    job = EvalJob(features="", heads=(), out="", judge=JudgeSettings(base_url="http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match="needs labels=FILE"):
        judge_scores({"head": KEEP_ALL}, job, {})
