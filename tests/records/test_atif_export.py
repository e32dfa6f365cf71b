"""Runs as ATIF: whole when they come back, and readable like anybody's."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given

from pipeline import export as export_door
from pipeline import ingest as ingest_door
from pipeline.records.atif_export import atif_from_record, record_from_atif_export
from pipeline.records.foreign.atif import run_from_atif
from pipeline.records.layout import Layout
from pipeline.records.mini_export import mini_from_record
from pipeline.records.rows import STEP
from pipeline.records.run_record import RunRecord
from tests.records.samples import bounded, drawn_runs, full_run


def as_file(run: RunRecord) -> dict[str, object]:
    """What stands in the file of a run, once it was written and read."""
    text = json.dumps(atif_from_record(run), ensure_ascii=False).encode(errors="backslashreplace")
    data: dict[str, object] = json.loads(text)
    return data


@bounded
@given(run=drawn_runs())
def test_an_exported_run_comes_back_whole(run: RunRecord) -> None:
    assert record_from_atif_export(as_file(run)) == run


def test_a_file_of_somebody_else_holds_no_record() -> None:
    assert record_from_atif_export({"schema_version": "ATIF-v1.6", "extra": {"x": 1}}) is None


def test_an_export_reads_like_any_trajectory_without_our_part() -> None:
    run = full_run()
    data = as_file(run)
    del data["extra"]
    read = run_from_atif(data, Path("nowhere/trajectory.json"), len)
    assert [m.content for m in read.trajectory.messages] == [m.content for m in run.messages]
    steps = [c for c in run.calls if c.kind == STEP and c.reply is None]
    for name in ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"):
        assert [getattr(c, name) for c in read.calls] == [getattr(c, name) for c in steps]


def test_steps_are_numbered_from_one_and_sums_are_of_all_calls() -> None:
    run = full_run()
    data = atif_from_record(run)
    assert [step["step_id"] for step in data["steps"]] == list(range(1, len(data["steps"]) + 1))
    total = sum(c.prompt_tokens or 0 for c in run.calls)
    assert data["final_metrics"]["total_prompt_tokens"] == total


def test_a_folder_goes_out_and_comes_back(tmp_path: Path) -> None:
    run = replace(full_run(), evidence="sim")
    source = tmp_path / "run.traj.json"
    source.write_text(json.dumps(mini_from_record(run)))
    first, second, out = (tmp_path / name for name in ("first", "second", "atif"))
    assert ingest_door.main([str(source), "--out", str(first)]) == 0
    assert export_door.main([str(first), "--format", "atif", "--out", str(out)]) == 0
    assert ingest_door.main([str(out), "--out", str(second)]) == 0
    before, after = (
        pq.read_table(Layout(folder).table_file("runs"))
        .drop_columns(["journal", "journal_offset"])
        .to_pylist()
        for folder in (first, second)
    )
    assert before == after
    assert len(before) == 1
