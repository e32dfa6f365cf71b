import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import export, ingest
from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import check_folder, write_folder
from pipeline.planning.prepare import prepare
from pipeline.records.failure import FailureClass
from pipeline.records.journal import Journal
from pipeline.records.layout import Layout
from pipeline.records.tables import compact
from tests.records.samples import TOOLS, full_run, grade_record, run_record


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three finished runs of two arms, one of them without a patch, and one failure of ours."""
    layout = Layout(tmp_path / "sweep")
    runs = [
        full_run("toy-1-plan_prune-s0", instance_id="toy__a-1"),
        run_record("toy-1-full-s0", instance_id="toy__a-1"),
        run_record(
            "toy-2-full-s0",
            instance_id="toy__a-2",
            patch="",
            failure_class=FailureClass.LIMIT_STEPS,
        ),
        run_record(
            "toy-2-plan_prune-s0",
            instance_id="toy__a-2",
            arm="plan_prune",
            failure_class=FailureClass.INFRA_SERVER,
        ),
    ]
    with Journal(layout.journal("w0")) as journal:
        for run in runs:
            journal.append_run(run)
        journal.append_grade(grade_record(runs[0]))
    return layout


def tables(layout: Layout, name: str) -> list[dict[str, Any]]:
    rows = pq.read_table(layout.table(name)).to_pylist()
    places = ("journal", "journal_offset")
    plain = [{k: v for k, v in row.items() if k not in places} for row in rows]
    return sorted(plain, key=lambda row: json.dumps(row, sort_keys=True))


def test_trajectories_go_out_and_come_back_without_loss(layout: Layout, tmp_path: Path) -> None:
    out, again = tmp_path / "traj", Layout(tmp_path / "again")
    assert export.main([str(layout.root), "--format", "traj", "--out", str(out)]) == 0
    assert len(list(out.rglob("*.traj.json"))) == 4
    assert ingest.main([str(out), "--out", str(again.root)]) == 0
    for name in ("runs", "calls", "messages", "plan_events", "tools"):
        assert tables(again, name) == tables(layout, name)


def test_predictions_are_one_file_a_cell_without_our_failures(
    layout: Layout, tmp_path: Path
) -> None:
    out = tmp_path / "preds"
    assert export.main([str(layout.root), "--format", "preds", "--out", str(out)]) == 0
    cells = {p.name: json.loads(p.read_text()) for p in out.iterdir()}
    assert set(cells) == {
        "mini__sim__full_history__s0.preds.json",
        "mini__sim__plan_prune__s0.preds.json",
    }
    full = cells["mini__sim__full_history__s0.preds.json"]
    assert full["toy__a-2"]["model_patch"] == ""
    pruned = cells["mini__sim__plan_prune__s0.preds.json"]
    assert pruned == {
        "toy__a-1": {
            "model_name_or_path": "mini__sim__plan_prune__s0",
            "instance_id": "toy__a-1",
            "model_patch": full_run().patch,
        }
    }


def test_a_dataset_folder_has_a_card_that_names_its_evidence(
    layout: Layout, tmp_path: Path
) -> None:
    out = tmp_path / "hf"
    assert export.main([str(layout.root), "--format", "hf", "--out", str(out)]) == 0
    card = (out / "README.md").read_text()
    assert "evidence: **sim**" in card
    assert "data_files: data/messages/*.parquet" in card
    assert "server" not in card  # no server was sampled: no empty table
    assert pq.read_table(out / "data/runs").num_rows == 4
    assert "`view_edits`" in (out / "records.md").read_text()


def test_what_is_there_is_not_overwritten(
    layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "hf"
    out.mkdir()
    assert export.main([str(layout.root), "--format", "hf", "--out", str(out)]) == 1
    assert "name another folder with --out" in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_a_package_needs_a_lock(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main([str(layout.root), "--format", "package"]) == 1
    assert "sweep.lock.yaml" in capsys.readouterr().err
    assert not (layout.exports / "package").exists()


def test_a_package_holds_lock_prompts_tables_and_sums_that_agree(
    layout: Layout, tmp_path: Path
) -> None:
    words = ["+sweep=demo", f"results={layout.root}", f"cluster.scratch={tmp_path / 'scratch'}"]
    opened, sweep = check_folder(Layout(tmp_path / "other"), prepare(sweep_spec(words)))
    write_folder(layout, sweep, opened)
    out = tmp_path / "package"
    assert export.main([str(layout.root), "--format", "package", "--out", str(out)]) == 0
    assert (out / "sweep.lock.yaml").read_bytes() == layout.lock.read_bytes()
    assert "reference:" in (out / "analysis.yaml").read_text()
    assert "python -m pipeline.analyze ." in (out / "reproduce.sh").read_text()
    prompts = {p.name: p for p in (out / "prompts").rglob("*") if p.is_file()}
    agent = sweep.lock.spec.agents["mini"]
    assert prompts[f"{agent.name}.system_template.j2"].read_text() == agent.system_template
    assert TOOLS in [p.read_text() for p in prompts.values()]
    cleanup = json.loads(prompts["mini__sim__plan_prune__s0.cleanup.json"].read_text())
    assert cleanup[-1]["content"].endswith("Review.")
    listed = dict(
        reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines()
    )
    files = {str(p.relative_to(out)): p for p in out.rglob("*") if p.is_file()}
    assert set(files) == {*listed, "SHA256SUMS"}
    assert all(hashlib.sha256(files[n].read_bytes()).hexdigest() == s for n, s in listed.items())
    assert compact(Layout(out)).n_runs == 4
    checked = subprocess.run(
        ["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=out, timeout=30, check=False
    )
    assert checked.returncode == 0


def test_a_folder_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Layout(tmp_path).tables.mkdir()
    assert export.main([str(tmp_path), "--format", "preds"]) == 2
    assert "no finished run" in capsys.readouterr().err


def test_a_folder_without_a_single_prediction_is_told_so_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "sweep")
    with Journal(layout.journal("w0")) as journal:
        journal.append_run(run_record("r0", failure_class=FailureClass.INFRA_SERVER))
    out = tmp_path / "preds"
    assert export.main([str(layout.root), "--format", "preds", "--out", str(out)]) == 1
    assert "every run in" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export.main([str(tmp_path / "nowhere"), "--format", "preds"]) == 2
    assert "nowhere" in capsys.readouterr().err
