from pathlib import Path

import pytest

from pipeline.records.columns import PLAN, RUNS, TABLES
from pipeline.records.plan import PLAN_SCHEMA
from pipeline.records.schema import (
    SCHEMA_VERSION,
    VERSION_KEY,
    check_version,
    records_page,
    schema_of,
    table_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "records.md"

PROMISED = {
    "runs": """run_id sweep benchmark instance_id repo model agent arm seed block_id attempt
        exit_status failure_class n_steps n_calls input_tokens cached_tokens output_tokens
        reasoning_tokens cleanup_input_tokens cleanup_output_tokens aux_input_tokens
        aux_output_tokens peak_context_tokens n_observations n_pruned pruned_tokens n_cleanups loop
        template_dropped_tokens retry_tokens wall_s model_s tool_s gpu_s token_counter evidence
        started_at finished_at worker node patch patch_sha256 limit_patch commit versions""",
    "calls": """run_id call_index step_index kind prompt_tokens cached_tokens lcp_tokens
        lcp_block_tokens new_tokens rebilled_tokens completion_tokens reasoning_tokens view_edits
        tools_sha256 tool_choice latency_s ttft_s finish_reason request_seed error started_at""",
    "messages": """run_id message_index step_index role tool_calls tool_call_id tool command
        returncode content reasoning n_tokens n_lines truncated pruned_at_call replaced_by""",
    "plan_events": "run_id call_index step_index action plan_step title status",
    "grades": """run_id instance_id attempt resolved grade_class patch_exists patch_applied
        f2p_passed f2p_total p2p_passed p2p_total harness_version image_digest patch_sha256 seconds
        report""",
    "server": """worker sampled_at running waiting kv_usage prompt_tokens generation_tokens
        prefix_queries prefix_hits preemptions gpu_util gpu_mem""",
}


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_column_is_there(name: str) -> None:
    assert set(PROMISED[name].split()) <= set(schema_of(TABLES[name]).names)


def test_the_page_in_docs_is_the_one_the_columns_make() -> None:
    assert PAGE.read_text() == records_page(), (
        "run: python -m pipeline.records.schema > docs/records.md"
    )


def test_every_column_is_named_once_and_explained() -> None:
    for table in (*TABLES.values(), PLAN):
        names = [c.name for c in table.columns]
        assert len(names) == len(set(names))
        assert all(c.doc for c in table.columns)


def test_the_plan_has_the_documented_columns() -> None:
    assert {c.name for c in PLAN.columns} == set(PLAN_SCHEMA.names)


def test_a_row_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="table runs has no column tokens"):
        table_of(RUNS, [{"run_id": "r", "tokens": 1}])


def test_what_a_row_does_not_say_is_null() -> None:
    table = table_of(RUNS, [{"run_id": "r"}])
    assert table["cached_tokens"].to_pylist() == [None]


def test_tables_of_a_newer_version_are_refused() -> None:
    schema = schema_of(RUNS)
    check_version(schema, "here")
    newer = schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION + 1).encode()})
    with pytest.raises(ValueError, match="install the planprune that wrote it"):
        check_version(newer, "runs.parquet")
