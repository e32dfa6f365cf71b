"""From a failure to its cause in two commands: `status` names the run, `show` says what it was."""

import json
from pathlib import Path

import pytest

from pipeline import show, status
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import write_folder
from pipeline.planning.prepare import prepare
from pipeline.records.failure import FailureClass, GradeClass
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun, read_plan
from pipeline.records.rebuild import messages_of_call
from pipeline.records.tables import compact
from tests.records.samples import full_run, grade_record

TRACEBACK = "Traceback (most recent call last):\nServerError: no answer after 3 tries"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A planned sweep of four runs: one failed on our side, one ran, one's grading failed."""
    layout = Layout(tmp_path / "results")
    words = ["+sweep=demo", "instances.sample=1", "seeds=[0]", f"results={layout.root}"]
    sweep = prepare(sweep_spec(words))
    write_folder(layout, sweep, "new")
    broken, whole, ungraded = (run.run_id for run in sweep.runs[:3])
    with new_journal(layout, "worker-1") as journal:
        failed = full_run(
            broken, failure_class=FailureClass.INFRA_SERVER, failure=TRACEBACK, worker="worker-1"
        )
        journal.append_run(failed)
        journal.append_run(full_run(whole, worker="worker-1"))
        journal.append_grade(grade_record(full_run(whole)))
        journal.append_run(full_run(ungraded, worker="worker-1"))
        journal.append_grade(
            grade_record(full_run(ungraded), grade_class=GradeClass.GRADE_INFRA, resolved=None)
        )
    layout.log("worker-1.server").write_text("out of memory\n")
    return layout


@pytest.fixture
def runs(layout: Layout) -> list[PlannedRun]:
    return read_plan(layout.plan)


def shown(layout: Layout, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert show.main([str(layout.root), *words]) == 0
    return capsys.readouterr().out


def test_status_names_what_failed_by_id_and_class_and_show_gives_the_cause(layout, runs, capsys):
    assert status.main([str(layout.root)]) == 0
    page = capsys.readouterr().out
    assert f"failed: {runs[0].run_id}  infra_server" in page
    assert f"failed: {runs[2].run_id}  grade_infra" in page
    assert runs[1].run_id not in page
    assert "python -m pipeline.show RESULTS RUN_ID" in page
    cause = shown(layout, capsys, runs[0].run_id)
    assert "ended infra_server" in cause
    assert "to be repeated by the next launch" in cause
    assert "ServerError: no answer after 3 tries" in cause
    assert str(layout.journal("worker-1")) in cause
    assert str(layout.log("worker-1.server")) in cause


def test_status_lists_all_failed_runs_as_json(layout, runs, capsys):
    assert status.main([str(layout.root), "--json"]) == 0
    failed = json.loads(capsys.readouterr().out)["failed"]
    assert {(f["run_id"], f["failed_as"]) for f in failed} == {
        (runs[0].run_id, "infra_server"),
        (runs[2].run_id, "grade_infra"),
    }


def test_the_page_has_plan_calls_edits_and_last_output(layout, runs, capsys):
    page = shown(layout, capsys, runs[1].run_id)
    record = full_run(runs[1].run_id)
    for event in record.plan_events:
        assert event.title in page
    for index, call in enumerate(record.calls):
        assert f"{index:>4} {call.step_index:>4}  {call.kind}" in page
    assert "1 elide" in page
    assert "1 prune" in page
    assert "$ " + str([m for m in record.messages if m.is_observation][-1].command) in page


def test_a_call_is_shown_as_it_was_sent(layout, runs, capsys):
    run_id = runs[1].run_id
    compact(layout)
    for call in range(len(full_run(run_id).calls)):
        sent = json.loads(shown(layout, capsys, run_id, "--call", str(call), "--json"))
        assert sent == messages_of_call(run_id, call, layout)
        text = shown(layout, capsys, run_id, "--call", str(call))
        assert all(str(message["content"]) in text for message in sent)


def test_a_run_is_shown_from_the_tables_where_its_journal_is_gone(layout, runs, capsys):
    before = shown(layout, capsys, runs[1].run_id)
    compact(layout)
    layout.journal("worker-1").unlink()
    after = shown(layout, capsys, runs[1].run_id)
    assert "(gone; shown from the tables)" in after
    assert after.replace(" (gone; shown from the tables)", "") == before


def test_the_json_has_the_rows_and_the_places(layout, runs, capsys):
    data = json.loads(shown(layout, capsys, runs[0].run_id, "--json"))
    assert data["run"]["failure"] == TRACEBACK
    assert len(data["calls"]) == len(full_run().calls)
    assert data["places"]["server log"] == str(layout.log("worker-1.server"))


def test_the_html_page_shows_a_run_that_failed_too(layout, runs, capsys, tmp_path):
    file = tmp_path / "page.html"
    assert shown(layout, capsys, runs[0].run_id, "--html", str(file)).endswith(f"{file}\n")
    assert "infra_server" in file.read_text()
    where = shown(layout, capsys, runs[1].run_id, "--html").splitlines()[-1]
    assert Path(where).parent == layout.report / "runs"


def test_a_folder_without_a_plan_shows_its_runs(tmp_path, capsys):
    """As `proxy` and `ingest` write them."""
    layout = Layout(tmp_path)
    with new_journal(layout, "proxy") as journal:
        journal.append_run(full_run("mine-0"))
    compact(layout)
    assert shown(layout, capsys, "mine").startswith("mine-0\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "there is no run nobody"),
        (["toy__"], "4 runs begin with toy__"),
        (["{missing}"], "has no record yet"),
        (["{whole}", "--call", "99"], "made 4 calls"),
    ],
)
def test_what_cannot_be_shown_is_told_why(layout, runs, capsys, words, says):
    names = {"missing": runs[3].run_id, "whole": runs[1].run_id}
    assert show.main([str(layout.root), *(word.format(**names) for word in words)]) == 2
    assert says in capsys.readouterr().err
