import json

from hypothesis import given

from pipeline.records.columns import TABLES
from pipeline.records.failure import FailureClass
from pipeline.records.rows import call_rows, message_rows, plan_event_rows, run_row
from pipeline.records.run_record import CallRecord, RunRecord
from pipeline.records.schema import table_of
from tests.records.samples import bounded, drawn_runs, full_run, run_record


def test_input_tokens_count_every_call_with_the_parts_beside() -> None:
    row = run_row(full_run())
    assert row["input_tokens"] == 570
    assert (row["cleanup_input_tokens"], row["aux_input_tokens"]) == (300, 20)
    assert row["output_tokens"] == 12 + 8 + 3 + 1
    assert (row["cleanup_output_tokens"], row["aux_output_tokens"]) == (8, 3)
    assert (row["n_steps"], row["n_calls"], row["n_cleanups"]) == (2, 4, 1)
    assert (row["peak_context_tokens"], row["peak_step_context_tokens"]) == (300, 150)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    call = CallRecord(step_index=1, kind="step", message_count=2, prompt_tokens=10)
    row = run_row(run_record(calls=(call,)))
    assert row["input_tokens"] == 10
    assert row["cached_tokens"] is None
    assert row["reasoning_tokens"] is None


def test_a_call_without_an_answer_is_kept_but_costs_nothing() -> None:
    refused = CallRecord(step_index=1, kind="step", message_count=2, error="context overflow")
    run = run_record(calls=(refused,), failure_class=FailureClass.LIMIT_CONTEXT)
    row = run_row(run)
    assert (row["n_steps"], row["n_calls"], row["input_tokens"]) == (0, 0, 0)
    assert row["peak_context_tokens"] is None
    assert [r["error"] for r in call_rows(run)] == ["context overflow"]


def test_pruning_is_told_from_elision_which_all_arms_share() -> None:
    rows = {r["message_index"]: r for r in message_rows(full_run())}
    assert rows[3]["pruned_at_call"] == 3
    assert rows[3]["prune_reason"] == "prune"
    assert rows[3]["replaced_by"] == "[omitted]"
    assert all(rows[i]["pruned_at_call"] is None for i in (0, 1, 2, 4, 5))
    row = run_row(full_run())
    assert row["n_pruned"] == 1
    assert row["pruned_tokens"] == 100  # 200 tokens, of which elision had left half


def test_a_plan_event_names_the_step_call_that_asked_for_it() -> None:
    (row,) = plan_event_rows(full_run())
    assert (row["call_index"], row["action"], row["outcome"]) == (0, "complete", "read it")


def test_no_patch_has_no_hash() -> None:
    assert run_row(run_record(patch=""))["patch_sha256"] is None


@bounded
@given(run=drawn_runs())
def test_the_rows_of_any_run_fit_the_tables(run: RunRecord) -> None:
    table_of(TABLES["runs"], [run_row(run)])
    calls = table_of(TABLES["calls"], call_rows(run)).to_pylist()
    messages = table_of(TABLES["messages"], message_rows(run)).to_pylist()
    assert [m["content"] for m in messages] == [m.content for m in run.messages]
    for call, row in zip(run.calls, calls, strict=True):
        assert row["prompt_tokens"] == call.prompt_tokens
        choice = row["tool_choice"]
        assert (None if choice is None else json.loads(choice)) == call.tool_choice
