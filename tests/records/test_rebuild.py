from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from pipeline.records.columns import TABLES
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.rebuild import (
    RunTables,
    all_run_tables,
    messages_of_call,
    record_from,
    run_tables,
    sent_calls,
    tool_lists,
    trajectory_from,
)
from pipeline.records.rows import call_rows, message_rows, plan_event_rows, run_row
from pipeline.records.run_record import OVERFLOW, CallRecord, RunRecord
from pipeline.records.schema import table_of
from pipeline.records.tables import compact
from pipeline.views.trajectory import Decision
from tests.records.samples import bounded, drawn_runs, full_run, sent_messages


def compacted(layout: Layout, *runs: RunRecord) -> None:
    with Journal(layout.journal("w0")) as journal:
        for run in runs:
            journal.append_run(run)
    compact(layout)


@bounded
@given(run=drawn_runs())
def test_the_rows_hold_exactly_what_every_call_sent(run: RunRecord) -> None:
    rebuilt = sent_calls(list(message_rows(run)), list(call_rows(run)))
    assert [call.messages for call in rebuilt] == sent_messages(run)


def test_the_tables_hold_exactly_what_every_call_sent(tmp_path: Path) -> None:
    layout, run = Layout(tmp_path), full_run()
    compacted(layout, full_run("another"), run)
    for index, sent in enumerate(sent_messages(run)):
        assert messages_of_call(run.run_id, index, layout) == sent


def test_a_cleanup_prompt_is_seen_by_its_own_call_only(tmp_path: Path) -> None:
    layout, run = Layout(tmp_path), full_run()
    compacted(layout, run)
    cleanup, summary, step = (messages_of_call(run.run_id, i, layout) for i in (1, 2, 3))
    assert cleanup[4]["content"].endswith("Review.")
    assert summary == [{"role": "user", "content": "Summarise é."}]
    assert step[4]["content"] == "step 1 is completed"
    assert step[3]["content"] == "[omitted]"


def test_the_trajectory_comes_back_with_plan_events_and_decisions(tmp_path: Path) -> None:
    layout, run = Layout(tmp_path), full_run()
    compacted(layout, run)
    rebuilt = trajectory_from(run_tables(run.run_id, layout))
    assert rebuilt == run.trajectory()
    assert len(rebuilt.decisions) == 2


def test_a_question_that_found_no_room_comes_back_as_one_without_an_answer(tmp_path: Path) -> None:
    """A policy was told so and decided on it; a replay that lacks the decision goes another way."""
    layout, run = Layout(tmp_path), full_run()
    n_messages, n_calls = len(run.messages), len(run.calls)
    asked = CallRecord(
        step_index=2,
        kind="cleanup",
        message_count=n_messages,
        error=f"{OVERFLOW}the window is full",
    )
    told = Decision(kind="cleanup", message_index=n_messages, call_index=n_calls, content="")
    run = replace(run, calls=(*run.calls, asked), decisions=(*run.decisions, told))
    compacted(layout, run)
    assert trajectory_from(run_tables(run.run_id, layout)).decisions == list(run.decisions)


def test_what_a_policy_asked_the_server_comes_back_as_a_decision(tmp_path: Path) -> None:
    layout, run = Layout(tmp_path), full_run()
    answer = '{"messages":[3],"answer":{"line_scores":{"outputs":[],"n_errors":0}}}'
    first = replace(run.calls[0], server_answer='{"kind":"line_scores",' + answer[1:])
    told = Decision(
        kind="line_scores", message_index=first.message_count, call_index=0, content=answer
    )
    run = replace(run, calls=(first, *run.calls[1:]), decisions=(told, *run.decisions))
    compacted(layout, run)
    assert trajectory_from(run_tables(run.run_id, layout)).decisions == list(run.decisions)


def test_what_a_line_pruner_said_comes_back_as_a_decision_before_the_calls_own(
    tmp_path: Path,
) -> None:
    layout, run = Layout(tmp_path), full_run()
    answer = (
        '{"pruner":"rag-1","outputs":[{"message":3,"kept":[[1,4]]},{"message":4,"error":"gone"}]}'
    )
    place = next(i for i, call in enumerate(run.calls) if call.kind == "cleanup")
    judged = replace(run.calls[place], pruner_answer=answer, pruner_s=0.25)
    told = Decision(
        kind="lines", message_index=judged.message_count, call_index=place, content=answer
    )
    calls = (*run.calls[:place], judged, *run.calls[place + 1 :])
    at = next(i for i, d in enumerate(run.decisions) if d.call_index >= place)
    decisions = (*run.decisions[:at], told, *run.decisions[at:])
    run = replace(run, calls=calls, decisions=decisions)
    compacted(layout, run)
    assert trajectory_from(run_tables(run.run_id, layout)).decisions == list(run.decisions)
    row = run_tables(run.run_id, layout).run
    assert (row["pruner_s"], row["n_pruner_errors"]) == (0.25, 1)


@bounded
@given(run=drawn_runs())
def test_a_record_comes_back_whole_from_its_rows(run: RunRecord) -> None:
    tables = RunTables(
        run=table_of(TABLES["runs"], [run_row(run)]).to_pylist()[0],
        calls=table_of(TABLES["calls"], call_rows(run)).to_pylist(),
        messages=table_of(TABLES["messages"], message_rows(run)).to_pylist(),
        plan_events=table_of(TABLES["plan_events"], plan_event_rows(run)).to_pylist(),
    )
    assert replace(record_from(tables, {}), decisions=()) == run


def test_all_runs_come_back_from_the_tables(tmp_path: Path) -> None:
    layout, runs = Layout(tmp_path), [full_run("r0"), full_run("r1", evidence="live")]
    compacted(layout, *runs)
    tools = tool_lists(layout)
    assert [record_from(tables, tools) for tables in all_run_tables(layout)] == runs


def test_an_unknown_run_or_call_is_named(tmp_path: Path) -> None:
    layout, run = Layout(tmp_path), full_run()
    compacted(layout, run)
    with pytest.raises(KeyError, match=r"pipeline\.compact"):
        messages_of_call("nobody", 0, layout)
    with pytest.raises(KeyError, match="has 4 calls"):
        messages_of_call(run.run_id, 9, layout)
