"""Patches are bytes, from the record through journal and tables to every export."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import export, ingest
from pipeline.records.journal import Journal, run_of, scan
from pipeline.records.layout import Layout
from pipeline.records.patch import patch_bytes, patch_text
from pipeline.records.rebuild import record_from, run_tables
from pipeline.records.tables import compact
from tests.records.samples import grade_record, run_record

ODD = b"--- a/caf\xe9.txt\n+++ b/caf\xe9.txt\n@@ -1 +1 @@\n-\xff\xfe\n+\0 \xc3\xa9\r\n"


def kept(tmp_path: Path, data: bytes) -> Layout:
    layout = Layout(tmp_path / "sweep")
    text = patch_text(data)
    run = run_record("toy-1-full-s0", patch=text, limit_patch=text, instance_id="toy__a-1")
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(run)
        journal.append_grade(grade_record(run))
    compact(layout)
    return layout


@pytest.mark.parametrize("data", [ODD, ODD * 200_000], ids=["short", "12 MB"])
def test_a_patch_goes_through_journal_tables_and_exports_without_a_changed_byte(
    tmp_path: Path, data: bytes
) -> None:
    layout = kept(tmp_path, data)
    frame = scan(layout.journal("w0")).frames[0]
    assert patch_bytes(run_of(frame).patch) == data
    assert frame.head["patch_sha256"] == hashlib.sha256(data).hexdigest()
    (row,) = pq.read_table(layout.table_file("runs")).to_pylist()
    assert row["patch_raw"] == row["limit_patch_raw"] == data
    assert row["patch"] == data.decode(errors="backslashreplace")
    again = record_from(run_tables("toy-1-full-s0", layout), {})
    assert patch_bytes(again.patch) == patch_bytes(again.limit_patch or "") == data
    assert again.patch_sha256 == hashlib.sha256(data).hexdigest()

    for name in ("preds", "traj", "reports"):
        out = ["--format", name, "--out", str(tmp_path / name)]
        assert export.main([str(layout.root), *out]) == 0
    (path,) = (tmp_path / "preds").iterdir()
    (prediction,) = json.loads(path.read_bytes()).values()
    assert patch_bytes(prediction["model_patch"]) == data
    (path,) = (tmp_path / "traj").rglob("*.traj.json")
    assert patch_bytes(json.loads(path.read_bytes())["info"]["submission"]) == data
    (path,) = (tmp_path / "reports").rglob("patch.diff")
    assert path.read_bytes() == data
    assert ingest.main([str(tmp_path / "traj"), "--out", str(tmp_path / "again")]) == 0
    (row,) = pq.read_table(Layout(tmp_path / "again").table_file("runs")).to_pylist()
    assert row["patch_raw"] == data


def test_a_patch_in_utf8_lies_in_its_column_alone(tmp_path: Path) -> None:
    layout = kept(tmp_path, "+ caf\u00e9\n".encode())
    (row,) = pq.read_table(layout.table_file("runs")).to_pylist()
    assert (row["patch"], row["patch_raw"]) == ("+ caf\u00e9\n", None)
    body = json.loads(scan(layout.journal("w0")).frames[0].body())
    assert body["patch"] == "+ caf\u00e9\n"


def test_half_a_surrogate_pair_beside_an_odd_patch_costs_neither(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    run = run_record(failure="said \ud83d", patch=patch_text(ODD))
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(run)
    again = run_of(scan(layout.journal("w0")).frames[0])
    assert again.failure == "said \\ud83d"
    assert patch_bytes(again.patch) == ODD
