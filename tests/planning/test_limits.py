"""Limits against the work: refused where nothing could ever finish, said where it goes slowly."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.history import History, history_of
from pipeline.planning.limits import limit_problems, limit_remarks
from pipeline.planning.prepare import prepare
from pipeline.records.cut_short import cut_short, note_cut_short
from pipeline.records.layout import Layout
from pipeline.spec.sweep import SweepSpec
from tests.words import words_of

TINY = ("+sweep=demo", "cluster=slurm", "model=tiny", "cluster.signal_delay_s=120")


def spec_of(*words: str) -> SweepSpec:
    return sweep_spec(words_of(*TINY, "results=nowhere", *words))


def refused(*words: str, past: History | None = None) -> list[str]:
    return [str(problem) for problem in limit_problems(spec_of(*words), past or History())]


def remarked(*words: str, past: History | None = None) -> list[str]:
    return list(limit_remarks(spec_of(*words), past or History()))


RUN_OF_HALF_AN_HOUR = ("agent.expected_wall_s=1800", "model.serve.expected_start_s=600")


def test_a_job_needs_time_for_the_server_one_run_and_its_own_end() -> None:
    # 10 minutes for the server, 30 for a run, 2 to end well.
    assert refused(*RUN_OF_HALF_AN_HOUR, "cluster.rollout.time_min=42") == []
    (said,) = refused(*RUN_OF_HALF_AN_HOUR, "cluster.rollout.time_min=41")
    assert said.startswith("cluster.rollout.time_min: a job of 41 min")
    for number in ("10 min to start the server", "30 min a run", "2 min to end", "42 min or more"):
        assert number in said


def test_known_run_times_count_more_than_the_expected_one() -> None:
    words = (*RUN_OF_HALF_AN_HOUR, "cluster.rollout.time_min=60")
    slow = History(wall_s=[3000.0] * 5)
    assert refused(*words, past=History(wall_s=[3000.0] * 4)) == []
    assert "50 min a run" in refused(*words, past=slow)[0]


def test_a_grading_job_must_outlast_one_grading() -> None:
    assert refused("grade_timeout_s=1800", "cluster.grading.time_min=32") == []
    (said,) = refused("grade_timeout_s=1800", "cluster.grading.time_min=31")
    assert said.startswith("cluster.grading.time_min: a job of 31 min")
    assert refused("grade_timeout_s=1800", "cluster.grading.time_min=31", "grade=false") == []


def test_on_this_machine_no_job_ends_a_run() -> None:
    assert refused("cluster=local", "cluster.rollout.time_min=1", "agent.expected_wall_s=600") == []


def test_sandboxes_that_do_not_fit_a_tasks_memory_are_counted() -> None:
    words = ("cluster.sandbox_memory_mb=16384", "cluster.rollout.concurrency=16")
    assert refused(*words, "cluster.rollout.mem_gb=180") == []
    (said,) = [r for r in remarked(*words, "cluster.rollout.mem_gb=180") if "sandboxes" in r]
    assert "16 sandboxes of up to 16 GB make 256 GB, and a task has 180" in said
    assert not [r for r in remarked(*words, "cluster.rollout.mem_gb=256") if "sandboxes" in r]
    (said,) = refused(*words, "cluster.rollout.mem_gb=15")
    assert said.startswith("cluster.rollout.mem_gb: one sandbox may take 16 GB")


def test_slots_beyond_what_the_servers_cache_holds_are_counted() -> None:
    words = ("model.serve.cache_tokens=230000", "agent.expected_context_tokens=16000")
    at_once = "model.serve.max_num_seqs=16"
    assert remarked(*words, at_once, "cluster.rollout.concurrency=14", WALL) == []
    (said,) = remarked(*words, at_once, "cluster.rollout.concurrency=16", WALL)
    assert "need a cache of 256,000" in said
    assert "14 fit, the others wait" in said
    (said,) = remarked(*words, "model.serve.max_num_seqs=8", "cluster.rollout.concurrency=9", WALL)
    assert "9 runs at once, and the server of tiny answers 8" in said
    assert "vLLM would not start" in refused("model.serve.cache_tokens=8000")[0]


WALL = "agent.wall_limit_s=600"


def test_runs_that_may_outlast_any_job_are_said_before() -> None:
    words = ("cluster.rollout.time_min=60", "model.serve.expected_start_s=600")
    (said,) = [r for r in remarked(*words, "agent.wall_limit_s=14400") if "240 min" in r]
    assert "a job leaves it 48 min" in said
    assert not remarked(*words, "agent.wall_limit_s=2880", "cluster.rollout.concurrency=1")


def test_grace_as_it_is_shipped_is_within_its_own_limits() -> None:
    for sweep in ("smoke25", "full500"):
        spec = sweep_spec([f"+sweep={sweep}", "cluster=grace", "results=nowhere"])
        assert list(limit_problems(spec, History())) == []
        assert not [r for r in limit_remarks(spec, History()) if "sandboxes" in r]


@pytest.fixture
def past(tmp_path: Path) -> History:
    """Two runs are open, and a job gave both of them half an hour in vain."""
    layout = Layout(tmp_path)
    runs = prepare(spec_of("instances.sample=1", "seeds=[0]")).runs[:2]
    note_cut_short(layout, "worker-1", {runs[0].run_id: 1700.0})
    note_cut_short(layout, "worker-2", {runs[0].run_id: 1800.0, runs[1].run_id: 1750.0})
    assert cut_short(layout)[runs[0].run_id] == 1800.0
    return history_of(layout, runs, {})


def test_runs_that_were_cut_short_are_not_submitted_again_for_as_little(past: History) -> None:
    words = ("agent.expected_wall_s=60", "model.serve.expected_start_s=60")
    (said,) = refused(*words, "cluster.rollout.time_min=35", past=past)
    assert "2 of 2 open runs were cut short" in said
    assert "after 30 min" in said
    assert "ask for 36 min or more" in said
    assert refused(*words, "cluster.rollout.time_min=36", past=past) == []


def test_where_other_runs_are_open_the_rest_is_run_and_it_is_said(past: History) -> None:
    words = ("agent.expected_wall_s=60", "cluster.rollout.time_min=30")
    other = replace(past.todo[0], run_id="another")
    more = replace(past, todo=[*past.todo, other])
    assert refused(*words, past=more) == []
    assert [r for r in remarked(*words, past=more) if "2 of 3 open runs" in r]
