"""Progress is plain data, which can be printed as JSON at every stage of a sweep."""

import json
from dataclasses import asdict

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import write_folder
from pipeline.planning.prepare import prepare
from pipeline.planning.progress import live_workers, progress_of
from pipeline.planning.submit import live_local_workers, submissions
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError
from pipeline.records.states import States
from tests.records.samples import grade_record, run_record


def test_progress_is_json_before_during_and_after_the_runs(tmp_path):
    layout = Layout(tmp_path / "results")
    sweep = prepare(sweep_spec(["+sweep=demo", "instances.sample=1", f"results={layout.root}"]))
    write_folder(layout, sweep, "new")
    states, seen = States(layout), []
    with new_journal(layout, "worker") as journal:
        for planned in sweep.runs:
            seen.append(json.loads(json.dumps(asdict(progress_of(layout, sweep.runs, states)))))
            record = run_record(planned.run_id)
            journal.append_run(record)
            journal.append_grade(grade_record(record))
    last = json.loads(json.dumps(asdict(progress_of(layout, sweep.runs, states))))
    assert [p["finished"] for p in (*seen, last)] == list(range(len(sweep.runs) + 1))
    assert sum(last["failure_classes"].values()) == len(sweep.runs)
    assert sum(last["grade_classes"].values()) == len(sweep.runs)


@pytest.mark.parametrize("content", ["", "{", "[]", "7"])
def test_a_status_file_that_is_no_report_is_passed_over(tmp_path, content):
    layout = Layout(tmp_path)
    layout.status.mkdir()
    layout.status_of("good").write_text('{"in_flight": []}')
    layout.status_of("bad").write_text(content)
    assert [worker["in_flight"] for worker in live_workers(layout)] == [[]]
    assert live_local_workers(layout) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_record_of_a_launch_is_named(tmp_path, content):
    layout = Layout(tmp_path)
    layout.submissions.mkdir()
    (layout.submissions / "20260101T000000-aaaaaa.json").write_text(content)
    with pytest.raises(LockError, match="20260101T000000-aaaaaa"):
        submissions(layout)
