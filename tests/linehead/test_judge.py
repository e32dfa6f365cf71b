"""The labelling job against a real HTTP server that answers from a script."""

import json
import signal
import threading
import time

import pytest

from pipeline.judging.asking import AnswerError, read_journal
from pipeline.judging.endpoint import NoJudgeError, judge_completer
from pipeline.linehead.judge import judge_labels
from pipeline.linehead.judge_prompt import judge_messages, parsed_answer
from pipeline.linehead.settings import JudgeSettings
from pipeline.records.failure import ServerError
from tests.fakes import Reply, ScriptedModel, says
from tests.linehead.runs import many_lines, run_of, samples_in


def answer(keep, confidence=0.9, reasoning="because", **reply):
    body = {"reasoning": reasoning, "confidence": confidence, "keep": keep}
    return says(json.dumps(body), **reply)


def settings_for(server, **more):
    return JudgeSettings(**{"base_url": server.base_url, "model": "scripted", "concurrency": 1,
                            **more})  # fmt: skip


def judged(server, samples, journal, **more):
    settings = settings_for(server, **more)
    completer = judge_completer(settings, {})
    try:
        return judge_labels(samples, settings, completer, journal)
    finally:
        completer.close()


SAMPLES = samples_in(run_of(*[(f"step {i}", f"cmd {i}", many_lines(4, f"o{i}")) for i in range(4)]))


def test_the_judge_sees_numbered_lines_the_call_four_messages_before_and_two_after():
    system, user = judge_messages(SAMPLES[2], JudgeSettings())
    assert "skeleton" in system["content"]
    text = user["content"]
    assert "1: o2 number 0\n2: o2 number 1\n" in text
    assert "<command>\ncmd 2\n</command>" in text
    before, after = text.split("<command>")
    assert "o1 number 0" in before
    assert "step 1" in before
    assert "step 0" not in before
    assert "o3 number 3" in after.split("<after>")[1]


def test_a_judge_that_cannot_tell_keeps_a_skeleton_whatever_confidence_is_wanted(tmp_path):
    replies = [answer([[1, 1]], confidence="skeleton"), answer([[2, 2]], confidence=0.4)]
    with ScriptedModel(replies) as server:
        report = judged(server, SAMPLES[:2], tmp_path / "a.jsonl", min_confidence=0.5)
    assert [o.kept.tolist() for o in report.labels] == [[True, False, False, False]]
    assert report.labels[0].confidence is None
    assert report.n_unsure == 1


def test_messages_around_are_cut_from_their_middle():
    _, user = judge_messages(SAMPLES[2], JudgeSettings(message_chars=27))
    assert "o1 number  [...] \no1 number" not in user["content"]
    assert " [...] " in user["content"].split("<command>")[0]


def test_kept_ranges_become_lines(tmp_path):
    with ScriptedModel([answer([[1, 2], [4, 4]]), answer([])]) as server:
        report = judged(server, SAMPLES[:2], tmp_path / "a.jsonl")
    assert [o.kept.tolist() for o in report.labels] == [[True, True, False, True], [False] * 4]
    assert report.labels[0].reasoning == "because"
    assert report.labels[0].confidence == 0.9
    assert server.requests[0]["temperature"] == 0.0


def test_an_unusable_answer_is_asked_for_again_with_what_was_wrong(tmp_path):
    replies = [says("I would keep all."), answer([[1, 9]]), answer([[1, 1]])]
    with ScriptedModel(replies) as server:
        report = judged(server, SAMPLES[:1], tmp_path / "a.jsonl")
    assert report.labels[0].kept.tolist() == [True, False, False, False]
    assert "no JSON object" in server.requests[1]["messages"][-1]["content"]
    assert "outside lines 1 to 4" in server.requests[2]["messages"][-1]["content"]


def test_an_output_without_a_usable_answer_is_counted_and_not_asked_about_again(tmp_path):
    with ScriptedModel([says("no")] * 2 + [answer([[1, 1]])]) as server:
        report = judged(server, SAMPLES[:2], tmp_path / "a.jsonl", max_attempts=2)
        again = judged(server, SAMPLES[:2], tmp_path / "a.jsonl", max_attempts=2)
    assert (report.asked.n_failed, len(report.labels)) == (1, 1)
    assert (again.asked.n_failed, again.asked.n_asked, again.asked.n_known) == (1, 0, 2)
    assert len(server.requests) == 3


def test_a_failing_server_is_asked_again_by_the_client(tmp_path):
    with ScriptedModel([Reply(status=503, body=b"{}"), answer([[1, 4]])]) as server:
        report = judged(server, SAMPLES[:1], tmp_path / "a.jsonl")
    assert report.labels[0].kept.all()


def test_a_job_that_an_error_stopped_goes_on_where_it_was(tmp_path):
    journal = tmp_path / "a.jsonl"
    replies = [answer([[1, 1]]), Reply(status=404, body=b"gone")]
    with ScriptedModel(replies) as server, pytest.raises(ServerError, match="gone"):
        judged(server, SAMPLES, journal)
    assert len(read_journal(journal)) == 1
    # A writer that was killed leaves a part of a line.
    journal.write_bytes(journal.read_bytes() + b'{"sample_id": "ru')
    with ScriptedModel([answer([[2, 2]])] * 3) as server:
        report = judged(server, SAMPLES, journal)
    assert (report.asked.n_known, report.asked.n_asked, len(report.labels)) == (1, 3, 4)
    assert report.labels[0].kept.tolist() == [True, False, False, False]
    assert len(read_journal(journal)) == 4


def test_another_prompt_is_another_question(tmp_path):
    with ScriptedModel([answer([[1, 1]]), answer([[2, 2]])]) as server:
        judged(server, SAMPLES[:1], tmp_path / "a.jsonl")
        report = judged(server, SAMPLES[:1], tmp_path / "a.jsonl", messages_before=2)
    assert report.asked.n_asked == 1
    assert report.labels[0].kept.tolist() == [False, True, False, False]


def test_the_cost_cap_is_never_passed_and_a_larger_one_goes_on(tmp_path):
    usage = {"prompt_tokens": 500, "completion_tokens": 100}
    prices = {"input_price": 1000.0, "output_price": 1000.0, "max_tokens": 200}
    with ScriptedModel([answer([[1, 1]], usage=usage)] * 4) as server:
        report = judged(server, SAMPLES, tmp_path / "a.jsonl", max_cost=2.5, **prices)
        assert report.asked.cost == pytest.approx(0.6 * report.asked.n_asked)
        assert report.asked.cost <= 2.5
        assert 0 < report.asked.n_asked < 4
        assert report.asked.n_left == 4 - report.asked.n_asked
        rest = judged(server, SAMPLES, tmp_path / "a.jsonl", max_cost=100.0, **prices)
    assert (rest.asked.n_left, len(rest.labels)) == (0, 4)
    assert rest.asked.cost == pytest.approx(2.4)


def test_an_output_whose_second_try_did_not_fit_the_cap_is_asked_about_again(tmp_path):
    usage = {"prompt_tokens": 500, "completion_tokens": 100}
    prices = {"input_price": 1000.0, "output_price": 1000.0, "max_tokens": 200}
    replies = [says("no", usage=usage), answer([[1, 1]], usage=usage)]
    with ScriptedModel(replies) as server:
        report = judged(server, SAMPLES[:1], tmp_path / "a.jsonl", max_cost=1.5, **prices)
        assert (report.asked.n_left, report.asked.n_failed) == (1, 0)
        rest = judged(server, SAMPLES[:1], tmp_path / "a.jsonl", max_cost=100.0, **prices)
    assert (rest.asked.n_left, len(rest.labels)) == (0, 1)
    assert rest.asked.cost == pytest.approx(1.2), "the unusable answer was paid for too"


def test_answers_to_an_earlier_prompt_stay_in_the_cost(tmp_path):
    usage = {"prompt_tokens": 500, "completion_tokens": 100}
    prices = {"input_price": 1000.0, "output_price": 1000.0}
    with ScriptedModel([answer([[1, 1]], usage=usage)] * 2) as server:
        judged(server, SAMPLES[:1], tmp_path / "a.jsonl", **prices)
        judged(server, SAMPLES[:1], tmp_path / "a.jsonl", messages_before=2, **prices)
        last = judged(server, SAMPLES[:1], tmp_path / "a.jsonl", messages_before=2, **prices)
    assert last.asked.n_asked == 0
    assert last.asked.cost == pytest.approx(1.2)


def test_unsure_answers_are_left_out_and_counted(tmp_path):
    with ScriptedModel([answer([], confidence=0.2), answer([])]) as server:
        report = judged(server, SAMPLES[:2], tmp_path / "a.jsonl", min_confidence=0.5)
    assert (report.n_unsure, len(report.labels)) == (1, 1)


def test_several_requests_at_once_give_the_labels_in_the_order_of_the_samples(tmp_path):
    def reply(body):
        number = int(body["messages"][1]["content"].split("<command>\ncmd ")[1][0])
        return answer([[number + 1, number + 1]], delay_s=0.02 * (3 - number))

    with ScriptedModel(reply) as server:
        report = judged(server, SAMPLES, tmp_path / "a.jsonl", concurrency=4)
    assert [o.kept.tolist().index(True) for o in report.labels] == [0, 1, 2, 3]


def test_an_endpoint_must_be_named_and_its_key_set():
    with pytest.raises(NoJudgeError, match=r"judge\.base_url="):
        judge_completer(JudgeSettings(), {})
    settings = JudgeSettings(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="NO_KEY")
    with pytest.raises(NoJudgeError, match="NO_KEY, which is not set"):
        judge_completer(settings, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON object"),
        ("{not json}", "does not parse"),
        ('{"confidence": 1}', "'keep' is missing"),
        ('{"keep": []}', "'confidence' is missing"),
        ('{"confidence": true, "keep": []}', "no number"),
        ('{"confidence": 2, "keep": []}', "not between"),
        ('{"confidence": 1, "keep": {}}', "no list"),
        ('{"confidence": 1, "keep": [[2, 1]]}', "no range"),
        ('{"confidence": 1, "keep": [[0, 1]]}', "outside"),
        ('{"confidence": 1, "keep": [[1.5, 2]]}', "no range"),
        ('{"confidence": 1, "keep": [3]}', "no range"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(text, problem):
    with pytest.raises(AnswerError, match=problem):
        parsed_answer(text, 5)


def test_thinking_and_a_code_fence_around_the_answer_are_passed_over():
    text = '<think>{"keep"}</think>\n```json\n{"confidence": 1, "keep": [[3, 4], [1, 1]]}\n```'
    assert parsed_answer(text, 5).ranges == ((1, 1), (3, 4))


def test_ctrl_c_keeps_the_answers_that_are_on_their_way(tmp_path):
    def slow(_body):
        # The first answers meet the interrupt while they are being made.
        if not interrupted.is_set():
            interrupted.set()
            time.sleep(0.3)  # by now all threads have started, and the first one waits for them
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.3)
        return answer([[1, 2]])

    interrupted = threading.Event()
    with ScriptedModel(slow) as server:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                judged(server, SAMPLES, tmp_path / "a.jsonl", concurrency=2)
        finally:
            signal.signal(signal.SIGINT, before)
        n_paid = len(server.requests)
        assert 0 < n_paid < len(SAMPLES)
        assert len(read_journal(tmp_path / "a.jsonl")) == n_paid
        report = judged(server, SAMPLES, tmp_path / "a.jsonl")
    assert report.asked.n_known == n_paid
    assert len(server.requests) == len(SAMPLES)


def test_an_answer_nested_without_end_is_unusable_like_any_other():
    with pytest.raises(AnswerError, match="does not parse"):
        parsed_answer('{"keep": ' + "[" * 100_000 + "]" * 100_000 + "}", 4)
