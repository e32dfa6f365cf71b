"""Grades in the files of the official harness: a tree of reports, and one summary a cell.

`logs/run_evaluation/RUN/MODEL/INSTANCE/` with `report.json`, `patch.diff` and `test_output.txt`,
and `MODEL.RUN.json` with the keys of the harness's run report (its schema 2). RUN is the sweep's
name, MODEL the cell's, as in predictions. Runs that failed on our side have no prediction, so they
are incomplete. As in the harness, only tests that ran leave a report: patches that did not apply
and tests that ran out of time are `error_ids`. So are gradings that failed on our side and runs
that are not graded; the former are among `infra_failure_ids` too. Decides no grade.
"""

import gzip
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.host.files import replace_bytes
from pipeline.records.failure import GradeClass
from pipeline.records.layout import Layout, file_name, grade_log_member
from pipeline.records.lock import read_rows
from pipeline.records.patch import patch_bytes
from pipeline.records.predictions import cell_name, predictions_by_cell
from pipeline.records.rows import Row

Classify = Callable[[str], tuple[str, bool] | None]
"""What broke in a test log, and whether that is surely the environment; None: nothing."""

SCHEMA = 2
"""Of the run report that swebench 5 writes."""
_REPORTED = frozenset({GradeClass.RESOLVED, GradeClass.UNRESOLVED})
_GRADE_COLUMNS = ["run_id", "instance_id", "attempt", "grade_class", "patch_sha256", "failure"]


@dataclass(slots=True)
class CellReport:
    """The instances of one cell by what became of them."""

    completed: set[str] = field(default_factory=set)
    resolved: set[str] = field(default_factory=set)
    unresolved: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    empty_patch: set[str] = field(default_factory=set)
    infra: set[str] = field(default_factory=set)
    ambiguous: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)

    def summary(self, submitted: set[str], dataset: set[str]) -> dict[str, Any]:
        """Return the official run report, key by key."""
        return {
            "total_instances": len(dataset),
            "submitted_instances": len(submitted),
            "completed_instances": len(self.completed),
            "resolved_instances": len(self.resolved),
            "unresolved_instances": len(self.unresolved),
            "infra_failure_instances": len(self.infra),
            "ambiguous_failure_instances": len(self.ambiguous),
            "empty_patch_instances": len(self.empty_patch),
            "error_instances": len(self.errors),
            "completed_ids": sorted(self.completed),
            "incomplete_ids": sorted(dataset - submitted),
            "empty_patch_ids": sorted(self.empty_patch),
            "submitted_ids": sorted(submitted),
            "resolved_ids": sorted(self.resolved),
            "unresolved_ids": sorted(self.unresolved),
            "infra_failure_ids": sorted(self.infra),
            "ambiguous_failure_ids": sorted(self.ambiguous),
            "failure_reasons": dict(sorted(self.reasons.items())),
            "error_ids": sorted(self.errors),
            "schema_version": SCHEMA,
        }


def write_reports(layout: Layout, out: Path, classify: Classify) -> list[Path]:
    """Write the tree of every cell and return the summaries, each whole or absent.

    Raises:
        LockError: the sweep's rows are damaged.
        OSError: a file could not be written.
    """
    cells, run = predictions_by_cell(layout), _run_name(layout)
    tree = out / "logs" / "run_evaluation" / run
    folders = {
        (cell, instance): tree / file_name(cell) / file_name(instance)
        for cell, predictions in cells.items()
        for instance in predictions
    }
    reports = {cell: CellReport() for cell in cells}
    for cell, predictions in cells.items():
        for instance, prediction in predictions.items():
            folder = folders[cell, instance]
            patch = prediction["model_patch"]
            for name in ("report.json", "test_output.txt"):
                # What an earlier export wrote may have been graded anew since.
                (folder / name).unlink(missing_ok=True)
            if not patch.strip():
                reports[cell].empty_patch.add(instance)
                continue
            reports[cell].errors.add(instance)
            folder.mkdir(parents=True, exist_ok=True)
            replace_bytes(folder / "patch.diff", patch_bytes(patch))
    grades = _grades(layout)
    _write_logs(layout, grades, folders)
    for (cell, instance), grade in grades.items():
        if cell in reports and instance in reports[cell].errors:
            _add(reports[cell], grade, folders[cell, instance], classify)
    dataset = set(read_rows(layout.dataset)) if layout.dataset.exists() else set()
    paths = []
    for cell, report in sorted(reports.items()):
        submitted = set(cells[cell])
        known = dataset or {instance for each in cells.values() for instance in each}
        path = out / f"{file_name(cell)}.{run}.json"
        replace_bytes(path, _json_bytes(report.summary(submitted, known)))
        paths.append(path)
    return paths


def _add(report: CellReport, grade: Row, folder: Path, classify: Classify) -> None:
    """Count one grade of a patch, and write its `report.json`."""
    instance, grade_class = grade["instance_id"], GradeClass(grade["grade_class"])
    if grade_class in _REPORTED:
        replace_bytes(
            folder / "report.json", _json_bytes({instance: json.loads(grade["report"] or "{}")})
        )
        report.errors.discard(instance)
        report.completed.add(instance)
    if grade_class is GradeClass.RESOLVED:
        report.resolved.add(instance)
        return
    if grade_class is GradeClass.UNRESOLVED:
        report.unresolved.add(instance)
    if grade_class is GradeClass.GRADE_INFRA:
        report.infra.add(instance)
        report.reasons[instance] = grade["failure"] or grade_class.value
        return
    log = folder / "test_output.txt"
    found = classify(log.read_text("utf-8", "replace")) if log.exists() else None
    if found is not None:
        reason, is_environment = found
        (report.infra if is_environment else report.ambiguous).add(instance)
        report.reasons[instance] = reason


def _run_name(layout: Layout) -> str:
    sweeps = pq.read_table(layout.table_file("runs"), columns=["sweep"])["sweep"].to_pylist()
    return file_name(str(sweeps[0]))


def _grades(layout: Layout) -> dict[tuple[str, str], Row]:
    """Return the grade of every run that has one, by cell and instance."""
    columns = ["run_id", "agent", "model", "arm", "seed"]
    runs = pq.read_table(layout.table_file("runs"), columns=columns).to_pylist()
    cells = {row["run_id"]: cell_name(row) for row in runs}
    path = layout.table_file("grades")
    if not path.exists():
        return {}
    rows = pq.read_table(path, columns=[*_GRADE_COLUMNS, "report"]).to_pylist()
    return {
        (cells[row["run_id"]], row["instance_id"]): row for row in rows if row["run_id"] in cells
    }


def _write_logs(
    layout: Layout,
    grades: Mapping[tuple[str, str], Row],
    folders: Mapping[tuple[str, str], Path],
) -> None:
    """Write `test_output.txt` of every grade whose log is kept.

    A patch that came again was graded once: its log is that of the grading that ran.
    """
    own = {
        grade_log_member(grade["run_id"], "submitted", grade["attempt"]): key
        for key, grade in grades.items()
    }
    same: dict[tuple[str, str | None], list[Path]] = {}
    for key, grade in grades.items():
        if key in folders:
            same.setdefault((grade["instance_id"], grade["patch_sha256"]), []).append(folders[key])
    for name, data in _members(layout):
        key_of_log = own.get(name)
        if key_of_log is None:
            continue
        grade = grades[key_of_log]
        for folder in same.get((grade["instance_id"], grade["patch_sha256"]), ()):
            log = folder / "test_output.txt"
            if folder.is_dir() and (folder == folders.get(key_of_log) or not log.exists()):
                replace_bytes(log, gzip.decompress(data))


def _members(layout: Layout) -> Iterator[tuple[str, bytes]]:
    """Give every whole test log that gradings left, with its name."""
    for path in sorted(layout.logs.glob("*.tar")):
        # A killed worker leaves an archive that ends early; what is before is whole.
        with suppress(tarfile.TarError, EOFError), tarfile.open(path, "r:") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    yield member.name, file.read()


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=4, ensure_ascii=False).encode() + b"\n"
