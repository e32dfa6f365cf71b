"""A graded sweep as the official harness's files: what the harness itself makes of them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import export
from pipeline.host.files import replace_bytes
from pipeline.records.failure import GradeClass
from pipeline.records.layout import Layout
from pipeline.records.lock import read_rows, rows_bytes
from pipeline.records.predictions import predictions_by_cell
from pipeline.worker import grade_job, rollout_job
from tests.worker.conftest import launched

OFFICIAL = """
import json, sys
from swebench.harness.reporting import make_run_report
cells, dataset, run = json.load(sys.stdin)
for cell in cells:
    make_run_report(cells[cell], dataset, run, report_dir="official")
"""


@pytest.fixture(scope="module")
def rolled_out(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Four runs of two arms: two that submit a patch, two that submit none."""
    root = tmp_path_factory.mktemp("rolled-out") / "sweep"
    layout = launched(root, "instances.ids=[toy__ledger-1,toy__tabular-1]", "agent.step_limit=45")
    rollout_job.main(str(layout.root), "sim", 0)
    return layout


@pytest.fixture
def layout(rolled_out: Layout, tmp_path: Path) -> Layout:
    shutil.copytree(rolled_out.root, tmp_path / "sweep")
    return Layout(tmp_path / "sweep")


def exported(layout: Layout, out: Path) -> dict[str, dict[str, Any]]:
    """Export, and return the summaries by cell."""
    assert export.main([str(layout.root), "--format", "reports", "--out", str(out)]) == 0
    return {
        p.name.removesuffix(".demo.json"): json.loads(p.read_text()) for p in out.glob("*.json")
    }


def official(layout: Layout, out: Path) -> dict[str, dict[str, Any]]:
    """What the harness's own reporting says of the exported tree."""
    cells = predictions_by_cell(layout)
    dataset = [{"instance_id": name} for name in read_rows(layout.dataset)]
    subprocess.run(
        [sys.executable, "-c", OFFICIAL],
        input=json.dumps([cells, dataset, "demo"]),
        text=True,
        cwd=out,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return {
        p.name.removesuffix(".demo.json"): json.loads(p.read_text())
        for p in (out / "official").glob("*.json")
    }


def grades(layout: Layout) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(layout.table_file("grades")).to_pylist()
    return rows


def test_the_harness_reads_the_tree_and_comes_to_the_same_summary(
    layout: Layout, tmp_path: Path
) -> None:
    grade_job.main(str(layout.root), 0)
    out = tmp_path / "reports"
    summaries = exported(layout, out)
    assert len(summaries) == 2
    assert summaries == official(layout, out)
    assert sum(s["resolved_instances"] for s in summaries.values()) == 2
    assert sum(s["empty_patch_instances"] for s in summaries.values()) == 2


def test_every_graded_patch_has_its_report_patch_and_log(layout: Layout, tmp_path: Path) -> None:
    grade_job.main(str(layout.root), 0)
    out = tmp_path / "reports"
    exported(layout, out)
    cells = predictions_by_cell(layout)
    with_patch = [(c, i) for c in cells for i in cells[c] if cells[c][i]["model_patch"]]
    assert len(with_patch) == len(list(out.rglob("report.json"))) == 2
    for cell, instance in with_patch:
        folder = out / "logs" / "run_evaluation" / "demo" / cell / instance
        report = json.loads((folder / "report.json").read_text())[instance]
        assert report["resolved"] is True
        assert report["tests_status"]["FAIL_TO_PASS"]["failure"] == []
        assert (folder / "patch.diff").read_text() == cells[cell][instance]["model_patch"]
        assert ">>>>> Start Test Output" in (folder / "test_output.txt").read_text()


def test_unresolved_patches_are_classified_as_the_harness_does(
    layout: Layout, tmp_path: Path
) -> None:
    rows = read_rows(layout.dataset).values()
    told = "echo ModuleNotFoundError; python3 runtests.py --no-such-option"
    changed = [
        {**row, "eval_script": row["eval_script"].replace("python3 runtests.py", told)}
        for row in rows
    ]
    replace_bytes(layout.dataset, rows_bytes(changed))
    grade_job.main(str(layout.root), 0)
    out = tmp_path / "reports"
    summaries = exported(layout, out)
    assert summaries == official(layout, out)
    assert {r for s in summaries.values() for r in s["failure_reasons"].values()} == {
        "missing_module"
    }


def test_a_grading_that_failed_on_our_side_is_an_error_and_never_unresolved(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.worker.blocks.BACKOFF_S", 0.01)
    rows = read_rows(layout.dataset).values()
    broken = "echo 'Temporary failure in name resolution'; false"
    changed = [
        {**row, "eval_script": row["eval_script"].replace("python3 runtests.py", broken)}
        for row in rows
    ]
    replace_bytes(layout.dataset, rows_bytes(changed))
    grade_job.main(str(layout.root), 0)
    out = tmp_path / "reports"
    summaries = exported(layout, out)
    failed = [
        g["instance_id"] for g in grades(layout) if g["grade_class"] == GradeClass.GRADE_INFRA
    ]
    assert sorted(i for s in summaries.values() for i in s["error_ids"]) == sorted(failed)
    assert sorted(i for s in summaries.values() for i in s["infra_failure_ids"]) == sorted(failed)
    assert not any(s["unresolved_ids"] for s in summaries.values())
    assert not list(out.rglob("report.json"))
    assert summaries == official(layout, out)


def test_a_second_export_drops_what_is_no_longer_so(layout: Layout, tmp_path: Path) -> None:
    out = tmp_path / "reports"
    cell, instance = next(
        (cell, name)
        for cell, predictions in _compacted(layout, out).items()
        for name, prediction in predictions.items()
        if prediction["model_patch"]
    )
    stale = out / "logs" / "run_evaluation" / "demo" / cell / instance / "report.json"
    stale.write_text("{}")
    summaries = exported(layout, out)
    assert not stale.exists()
    assert instance in summaries[cell]["error_ids"]


def _compacted(layout: Layout, out: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Export a sweep that nobody has graded, and return its predictions."""
    exported(layout, out)
    return predictions_by_cell(layout)
